"""`make gpu`: Fairlead on a machine with an NVIDIA GPU and nothing else.

A sandbox with one node whose driver, claims and containers are real: __main__.py starts it and prints the report, stage.py is the
node and its pods, runtime.py and container.py run them, gpu_program.py is what runs in them, and each checks_*.py looks at one
part. standin/ takes the hardware's place where there is none.
"""

"""The hardware's place in `make gpu` where there is none: one H200 in a virtual machine, as NVML, nvidia-smi and CUDA show it.

What programs do is in files of the state directory ($GPU_STATE), which all three read: state.py. sitecustomize.py puts NVML's
stand-in into the driver's process, nvidia-smi is a program, and cuda_standin.py is what the GPU program finds instead of libcuda.
"""

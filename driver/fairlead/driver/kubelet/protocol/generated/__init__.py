"""Made by driver/fairlead/driver/kubelet/protocol/generate.py; not edited by hand."""

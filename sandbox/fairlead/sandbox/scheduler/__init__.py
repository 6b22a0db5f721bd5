"""The stock kube-scheduler as far as it touches Fairlead: gates, filters, Dynamic Resource Allocation, binding."""

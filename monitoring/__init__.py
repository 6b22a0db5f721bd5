"""What Prometheus and Grafana load: the source of the dashboards, and a mixin of dashboards and rules. No program imports it."""

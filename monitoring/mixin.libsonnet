// A monitoring mixin: Fairlead's dashboards and rules for those who render theirs with jsonnet (mixtool, kube-prometheus).
//
//   (import 'fairlead/monitoring/mixin.libsonnet') + { _config+:: { grafanaUrl: 'https://grafana.example.com' } }
{
  local written = std.parseYaml(importstr '../manifests/chart/files/rules.yaml'),
  local alerting(rule) = std.objectHas(rule, 'alert'),
  // Groups with those of their rules that `wanted` takes; none without a rule.
  local groups(wanted) = [
    group { rules: std.filter(wanted, group.rules) }
    for group in written.groups
    if std.length(std.filter(wanted, group.rules)) > 0
  ],

  _config:: {
    // Where docs/runbooks.md can be read.
    runbookUrl: 'docs/runbooks.md',
    // Grafana's address, before the path of a dashboard.
    grafanaUrl: '',
    // Added to every alert, such as { team: 'platform' }.
    alertLabels: {},
    // Added to the tags of every dashboard.
    dashboardTags: [],
  },

  local config = self._config,

  grafanaDashboards+:: {
    [name]: dashboards[name] { tags+: config.dashboardTags }
    for name in std.objectFields(dashboards)
  },
  local dashboards = {
    'fairlead-first-look.json': import '../manifests/chart/files/dashboards/fairlead-first-look.json',
    'fairlead-cluster.json': import '../manifests/chart/files/dashboards/fairlead-cluster.json',
    'fairlead-queues.json': import '../manifests/chart/files/dashboards/fairlead-queues.json',
    'fairlead-waiting.json': import '../manifests/chart/files/dashboards/fairlead-waiting.json',
    'fairlead-gang.json': import '../manifests/chart/files/dashboards/fairlead-gang.json',
    'fairlead-gpus.json': import '../manifests/chart/files/dashboards/fairlead-gpus.json',
    'fairlead-itself.json': import '../manifests/chart/files/dashboards/fairlead-itself.json',
    'fairlead-cost.json': import '../manifests/chart/files/dashboards/fairlead-cost.json',
  },

  prometheusRules+:: { groups+: groups(function(rule) !alerting(rule)) },

  prometheusAlerts+:: {
    groups+: [
      group {
        rules: [
          rule {
            labels+: config.alertLabels,
            annotations+: {
              runbook_url: std.strReplace(rule.annotations.runbook_url, 'docs/runbooks.md', config.runbookUrl),
              dashboard_url: config.grafanaUrl + rule.annotations.dashboard_url,
            },
          }
          for rule in group.rules
        ],
      }
      for group in groups(alerting)
    ],
  },
}

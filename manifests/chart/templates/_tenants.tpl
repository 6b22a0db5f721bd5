{{- /* What templates/tenants.yaml uses. The same objects as lib/fairlead/api/tenant_objects.py; a test compares. */ -}}

{{- /* Argument: the root. What the schema cannot say. */ -}}
{{- define "fairlead.validateTenants" -}}
{{- if not .Values.userRoles.create -}}
{{- fail "tenants: their RoleBindings name the ClusterRoles of userRoles, which are not created; set userRoles.create=true" -}}
{{- end -}}
{{- $seen := dict -}}
{{- range .Values.tenants -}}
{{- $tenant := .name -}}
{{- $namespaces := .namespaces | default (list .name) -}}
{{- $queues := .queues | default (list (dict "name" .name)) -}}
{{- $keys := list (printf "tenant %q" .name) -}}
{{- range $namespaces }}{{ $keys = append $keys (printf "namespace %q" .) }}{{ end -}}
{{- range $queues }}{{ if ne (toString .create) "false" }}{{ $keys = append $keys (printf "queue %q" .name) }}{{ end }}{{ end -}}
{{- range $keys -}}
{{- if hasKey $seen . }}{{ fail (printf "tenants: %s stands there twice (of tenants %s and %s); keep one" . (get $seen .) $tenant) }}{{ end -}}
{{- $_ := set $seen . $tenant -}}
{{- end -}}
{{- $bound := dict -}}
{{- range $queues -}}
{{- $queue := . -}}
{{- if and (not .namespaces) (gt (len $queues) 1) -}}
{{- fail (printf "tenants: tenant %q: queue %q: with several queues each says which namespaces are bound to it; list them" $tenant .name) -}}
{{- end -}}
{{- if and (eq (toString .create) "false") (or .parent .flavors) -}}
{{- fail (printf "tenants: tenant %q: queue %q is not created here (create: false); remove its parent and flavors" $tenant .name) -}}
{{- end -}}
{{- range (.namespaces | default $namespaces) -}}
{{- if not (has . $namespaces) }}{{ fail (printf "tenants: tenant %q: queue %q: %q is none of its namespaces; add it to namespaces" $tenant $queue.name .) }}{{ end -}}
{{- if hasKey $bound . }}{{ fail (printf "tenants: tenant %q: namespace %q is bound to queues %q and %q; remove it from one" $tenant . (get $bound .) $queue.name) }}{{ end -}}
{{- $_ := set $bound . $queue.name -}}
{{- end -}}
{{- end -}}
{{- range $namespaces -}}
{{- if not (hasKey $bound .) }}{{ fail (printf "tenants: tenant %q: namespace %q is bound to none of its queues; list it in one's namespaces" $tenant .) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Arguments: a dict of root and tenant. */ -}}
{{- define "fairlead.tenantLabels" -}}
app.kubernetes.io/part-of: fairlead
fairlead.dev/tenant: {{ .tenant.name }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Arguments: a dict of tenant and namespace. The queue that the namespace is bound to. */ -}}
{{- define "fairlead.tenantQueue" -}}
{{- range (.tenant.queues | default (list (dict "name" .tenant.name))) -}}
{{- if or (not .namespaces) (has $.namespace .namespaces) }}{{ .name }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* A count or a quantity, as the text that a ResourceQuota has. */ -}}
{{- define "fairlead.quantity" -}}
{{- if kindIs "string" . }}{{ quote . }}{{ else }}{{ int64 . | toString | quote }}{{ end -}}
{{- end -}}

{{- /* spec.hard of a tenant's ResourceQuota. */ -}}
{{- define "fairlead.tenantHard" -}}
{{- $quota := .quota | default dict -}}
{{- range $class, $devices := $quota.gpus }}
{{ $class }}.deviceclass.resource.k8s.io/devices: {{ include "fairlead.quantity" $devices }}
{{- end }}
{{- range $field, $name := dict "claims" "count/resourceclaims.resource.k8s.io" "pods" "pods" "cpu" "requests.cpu" "memory" "requests.memory" }}
{{- if not (kindIs "invalid" (index $quota $field)) }}
{{ $name }}: {{ include "fairlead.quantity" (index $quota $field) }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Arguments: a dict of peers and field (to or from). Rules of a NetworkPolicy. */ -}}
{{- define "fairlead.tenantTraffic" -}}
{{- range .peers }}
- {{ $.field }}:
    {{- if .cidr }}
    - ipBlock:
        cidr: {{ .cidr | quote }}
    {{- else }}
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ .namespace }}
    {{- end }}
  {{- $protocol := .protocol | default "TCP" }}
  {{- with .ports }}
  ports:
    {{- range . }}
    - port: {{ int64 . }}
      protocol: {{ $protocol }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* The subjects of a RoleBinding. */ -}}
{{- define "fairlead.tenantSubjects" -}}
{{- range . }}
{{- $name := regexReplaceAll "^[a-z]+:" . "" }}
{{- if hasPrefix "serviceaccount:" . }}
- kind: ServiceAccount
  name: {{ (splitList "/" $name) | last }}
  namespace: {{ (splitList "/" $name) | first }}
{{- else }}
- kind: {{ ternary "User" "Group" (hasPrefix "user:" .) }}
  name: {{ $name | quote }}
  apiGroup: rbac.authorization.k8s.io
{{- end }}
{{- end }}
{{- end -}}

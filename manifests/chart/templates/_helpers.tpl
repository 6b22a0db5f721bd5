{{- /* Names are fixed: two Fairleads in one cluster would allocate each other's devices. */ -}}

{{- define "fairlead.validate" -}}
{{- if ne .Release.Namespace "fairlead-system" -}}
{{- fail (printf "namespace %q: Fairlead is installed into fairlead-system, because its webhook, its policies and its leader lease name that namespace; use --namespace fairlead-system" .Release.Namespace) -}}
{{- end -}}
{{- if and .Values.driver.enabled (not (has "gpu.fairlead.dev" .Values.managedDrivers)) -}}
{{- fail "driver.enabled: the driver announces devices of gpu.fairlead.dev, which managedDrivers does not name: nobody would allocate them; add it, or set driver.enabled=false" -}}
{{- end -}}
{{- range .Values.sharedClaimDrivers -}}
{{- if has . $.Values.managedDrivers -}}
{{- fail (printf "sharedClaimDrivers: %s is in managedDrivers, too, and only Fairlead gives out its devices; take it out of one of them" .) -}}
{{- end -}}
{{- end -}}
{{- with .Values.deviceClasses.extendedResources -}}
{{- if and .enabled $.Values.policies.allocationFence -}}
{{- fail "deviceClasses.extendedResources: kube-scheduler answers such limits itself, and policies.allocationFence keeps it off these devices; leave it to the webhook, which turns limits into claims, or, where Fairlead's controller allocates nothing, set policies.allocationFence=false" -}}
{{- end -}}
{{- if and .enabled (eq $.Values.driver.nodeLabels.migStrategy "none") -}}
{{- fail "deviceClasses.extendedResources: devices have the names of extended resources with driver.nodeLabels.migStrategy single or mixed only; set it" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.deviceClasses.singleMigAsGpu (ne .Values.driver.nodeLabels.migStrategy "single") -}}
{{- fail "deviceClasses.singleMigAsGpu: MIG devices count as GPUs with driver.nodeLabels.migStrategy single only; set it" -}}
{{- end -}}
{{- with .Values.ui -}}
{{- if and .enabled (eq .login "proxy") (not .proxy.secret) (not (and .proxy.clientCaSecret .proxy.names)) -}}
{{- fail "ui.login: proxy: whoever can reach the pages could be anybody; set ui.proxy.secret, or ui.proxy.clientCaSecret and ui.proxy.names" -}}
{{- end -}}
{{- end -}}
{{- $names := dict -}}
{{- range .Values.driver.pools -}}
{{- if hasKey $names .name -}}
{{- fail (printf "driver.pools: two pools are called %q; a pool's name is its DaemonSet's" .name) -}}
{{- end -}}
{{- $_ := set $names .name true -}}
{{- end -}}
{{- end -}}

{{- define "fairlead.labels" -}}
app.kubernetes.io/name: fairlead
app.kubernetes.io/part-of: fairlead
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Arguments: a dict of root and component. */ -}}
{{- define "fairlead.selector" -}}
app.kubernetes.io/name: fairlead
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "fairlead.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* What PodSecurity's restricted level asks of a container. */ -}}
{{- define "fairlead.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "fairlead.restrictedPod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- /* Replicas on different nodes and in different zones, where there are such. */ -}}
{{- define "fairlead.spread" -}}
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "fairlead.selector" $ | nindent 6 }}
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end -}}

{{- /* Of the port and scheme given: a probe asks the server whose answers are needed. */ -}}
{{- define "fairlead.probes" -}}
livenessProbe:
  httpGet:
    path: /healthz
    port: {{ .port }}
    {{- with .scheme }}
    scheme: {{ . }}
    {{- end }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet:
    path: /readyz
    port: {{ .port }}
    {{- with .scheme }}
    scheme: {{ . }}
    {{- end }}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}

{{- define "fairlead.logArgs" -}}
- --log-format={{ .Values.log.format }}
- --log-level={{ .Values.log.level }}
{{- end -}}

{{- define "fairlead.managedArgs" -}}
{{- range .Values.managedDrivers }}
- --managed-driver={{ . }}
{{- end }}
{{- end -}}

{{- define "fairlead.driverArgs" -}}
{{ include "fairlead.managedArgs" . }}
{{- range .Values.sharedClaimDrivers }}
- --shared-claim-driver={{ . }}
{{- end }}
{{- end -}}

{{- define "fairlead.celList" -}}
[{{ range $index, $each := . }}{{ if $index }}, {{ end }}'{{ $each }}'{{ end }}]
{{- end -}}

{{- define "fairlead.uninstallHook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* Names of the controller's volumes that live as long as their pod. */}}
{{- define "fairlead.localVolumes" -}}
{{- $names := list }}
{{- with .Values.controller.record }}
{{- if and .enabled (or (empty .volume) (hasKey .volume "emptyDir")) }}{{ $names = append $names "recording" }}{{ end }}
{{- end }}
{{- with .Values.controller.ledger }}
{{- if and .enabled (not .urlSecret) (or (empty .volume) (hasKey .volume "emptyDir")) }}{{ $names = append $names "ledger" }}{{ end }}
{{- end }}
{{- join "," $names }}
{{- end }}

{{/* Whether a part of monitoring is wanted: what it says itself, else monitoring.enabled. Empty means no. */}}
{{- define "fairlead.monitors" -}}
{{- $all := index . 0 }}{{ $part := index . 1 }}
{{- if kindIs "bool" $part.enabled }}{{ if $part.enabled }}yes{{ end }}{{ else if $all.enabled }}yes{{ end }}
{{- end }}

{{/* What the collector of traces asks for, in the containers' environment; empty without. */}}
{{- define "fairlead.tracingEnv" -}}
{{- if and .Values.tracing.endpoint .Values.tracing.headersSecret -}}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom:
    secretKeyRef:
      name: {{ .Values.tracing.headersSecret }}
      key: headers
{{- end }}
{{- end }}

{{/* The port of a URL, or that of its scheme. */}}
{{- define "fairlead.urlPort" -}}
{{- $url := urlParse . -}}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (ternary "443" "80" (eq $url.scheme "https")) -}}
{{- end }}

{{/* The Secret whose certificate the pages serve; empty: each replica makes one of its own. */}}
{{- define "fairlead.uiCertificate" -}}
{{- .Values.ui.tlsSecret | default (ternary "fairlead-ui-certificate" "" .Values.certManager.enabled) -}}
{{- end }}

{{- define "fairlead.uiMounts" -}}
{{- if include "fairlead.uiCertificate" . }}
- name: certificate
  mountPath: /etc/fairlead/ui
  readOnly: true
{{- end }}
{{- if eq .Values.ui.login "proxy" }}
{{- if .Values.ui.proxy.secret }}
- name: proxy
  mountPath: /etc/fairlead/proxy
  readOnly: true
{{- end }}
{{- if .Values.ui.proxy.clientCaSecret }}
- name: client-ca
  mountPath: /etc/fairlead/client-ca
  readOnly: true
{{- end }}
{{- end }}
{{- end }}

{{- define "fairlead.uiVolumes" -}}
{{- with include "fairlead.uiCertificate" . }}
- name: certificate
  secret:
    secretName: {{ . }}
{{- end }}
{{- if eq .Values.ui.login "proxy" }}
{{- with .Values.ui.proxy.secret }}
- name: proxy
  secret:
    secretName: {{ . }}
{{- end }}
{{- with .Values.ui.proxy.clientCaSecret }}
- name: client-ca
  secret:
    secretName: {{ . }}
    items: [{key: ca.crt, path: ca.crt}]
{{- end }}
{{- end }}
{{- end }}

{{- /*
The match condition of what breaks one of a policy's rules (`rules`, a YAML list of validations), and of nothing else; `where` holds of every
such write, and is looked at first. An apiserver converts the objects once for all match conditions, and three times more where they hold:
what is allowed thus costs a quarter. It evaluates each condition, whatever another one says, so this is one.
*/ -}}
{{- define "fairlead.breaks" -}}
{{- $rules := list -}}
{{- range fromYamlArray .rules -}}{{- $rules = append $rules (printf "(%s)" (trim .expression)) -}}{{- end -}}
- name: breaks-a-rule
  expression: >-
    ({{ trim .where | nindent 4 | trim }}) &&
    !({{ join " &&\n" $rules | nindent 4 | trim }})
{{- end -}}

{{- /* That no annotation or label (`field`) has changed but those of which `but` holds, CEL over its key k. */ -}}
{{- define "fairlead.keysKept" -}}
object.metadata.?{{ .field }}.orValue({}).all(k, {{ .but }} || (k in oldObject.metadata.?{{ .field }}.orValue({}) &&
object.metadata.{{ .field }}[k] == oldObject.metadata.{{ .field }}[k])) &&
oldObject.metadata.?{{ .field }}.orValue({}).all(k, {{ .but }} || k in object.metadata.?{{ .field }}.orValue({}))
{{- end -}}

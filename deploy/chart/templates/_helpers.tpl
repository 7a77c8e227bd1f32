{{- define "warren.name" -}}
{{- if contains "warren" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-warren" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What would break the cluster, refused before anything changes. In a mere rendering `lookup` finds
nothing. */}}
{{- define "warren.refusals" -}}
{{- $name := include "warren.name" . -}}
{{- if not (regexMatch "^[a-z][a-z0-9-]*$" $name) -}}
{{- fail (printf "release %q: Services have its name, so it must begin with a letter and have no dot" .Release.Name) -}}
{{- end -}}
{{- $now := (lookup "apps/v1" "StatefulSet" .Release.Namespace $name).spec | default dict -}}
{{- if gt (sub (int $now.replicas) (int .Values.replicas)) 1 -}}
{{- fail (printf "replicas: from %d to %d: all pods above would stop at once, and queues with most of their members there; remove one node at a time, as \"Shrink\" of the page about Kubernetes says" (int $now.replicas) (int .Values.replicas)) -}}
{{- end -}}
{{- range $now.volumeClaimTemplates -}}
{{- if ne .spec.resources.requests.storage $.Values.persistence.size -}}
{{- fail (printf "persistence.size: the volumes have %s, and Kubernetes does not change that; \"Enlarge volumes\" of the page about Kubernetes says how it is done" .spec.resources.requests.storage) -}}
{{- end -}}
{{- end -}}
{{- if and .Release.IsInstall .Values.definitions.data (not .Values.auth.existingSecret) -}}
{{- $username := .Values.auth.username | default "warren" -}}
{{- $found := dict -}}
{{- range .Values.definitions.data.users -}}
{{- if and (eq (toString .name) $username) (contains "administrator" (toString .tags)) -}}
{{- $_ := set $found "user" true -}}
{{- end -}}
{{- end -}}
{{- if not $found -}}
{{- fail (printf "definitions.data: a new cluster has the users of its definitions alone, and %q of auth.username is not among them with the tag administrator" $username) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "warren.selector" -}}
app.kubernetes.io/name: warren
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "warren.labels" -}}
{{ include "warren.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "warren.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "warren.nodes" -}}
{{ include "warren.name" . }}-nodes
{{- end -}}

{{- define "warren.authSecret" -}}
{{ .Values.auth.existingSecret | default (include "warren.name" .) }}
{{- end -}}

{{- define "warren.tlsSecret" -}}
{{ .Values.tls.existingSecret | default (printf "%s-tls" (include "warren.name" .)) }}
{{- end -}}

{{- define "warren.host" -}}
{{ include "warren.name" . }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* Whether there are definitions: the file's path, or nothing. */}}
{{- define "warren.definitions" -}}
{{- with .Values.definitions }}
{{- if or .data .existingConfigMap .existingSecret }}/etc/warren/{{ .key }}{{ end }}
{{- end }}
{{- end -}}

{{/* The watermark in bytes: a part of the memory limit, which is in Mi or Gi. */}}
{{- define "warren.watermark" -}}
{{- $limit := .Values.resources.limits.memory -}}
{{- $unit := hasSuffix "Gi" $limit | ternary 1073741824 1048576 -}}
{{- mulf (regexFind "^[0-9]+" $limit) $unit .Values.memoryHighWatermark | floor | int64 -}}
{{- end -}}

{{/* User and password, and where this release's clients connect: the environment of both pods. */}}
{{- define "warren.clientEnvironment" -}}
- name: WARREN_DEFAULT_USER
  valueFrom: {secretKeyRef: {name: {{ include "warren.authSecret" . }}, key: username}}
- name: WARREN_DEFAULT_PASS
  valueFrom: {secretKeyRef: {name: {{ include "warren.authSecret" . }}, key: password}}
- name: WARREN_URI
{{- $login := "$(WARREN_DEFAULT_USER):$(WARREN_DEFAULT_PASS)" }}
{{- if .Values.tls.enabled }}
  value: amqps://{{ $login }}@{{ include "warren.host" . }}:5671{{ if .Values.tls.ca }}?caFile=/etc/warren/tls/ca.crt{{ end }}
{{- else }}
  value: amqp://{{ $login }}@{{ include "warren.host" . }}:5672
{{- end }}
{{- end -}}

{{/* What both containers may do: nothing but write to their volumes. */}}
{{- define "warren.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "warren.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* Files of TLS, as sources of a projected volume. */}}
{{- define "warren.tlsSource" -}}
- secret:
    name: {{ include "warren.tlsSecret" . }}
    items:
      {{- range (.Values.tls.ca | ternary (list "tls.crt" "tls.key" "ca.crt") (list "tls.crt" "tls.key")) }}
      - {key: {{ . }}, path: tls/{{ . }}}
      {{- end }}
{{- end -}}

{{/* Settings that go before the file's: each is an environment variable of the node. */}}
{{- define "warren.settings" -}}
{{- $at := contains ":" .Values.listen | ternary (printf "[%s]" .Values.listen) .Values.listen -}}
CLUSTER: {{ include "warren.name" . }}
DATA_DIR: /var/lib/warren/data
ANONYMOUS_LOGIN_USER: none
ALARMS__MEMORY_HIGH_WATERMARK_BYTES: {{ include "warren.watermark" . | quote }}
LISTEN__PEERS: {{ printf "%s:25672" $at | quote }}
LISTEN__AMQP: {{ and .Values.tls.enabled (not .Values.tls.plain) | ternary "none" (printf "%s:5672" $at) | quote }}
PROMETHEUS__ENABLED: "true"
PROMETHEUS__TCP__IP: {{ .Values.listen | quote }}
MANAGEMENT__ENABLED: "true"
{{- if .Values.tls.enabled }}
LISTEN__AMQPS: {{ printf "%s:5671" $at | quote }}
TLS__CERTFILE: /etc/warren/tls/tls.crt
TLS__KEYFILE: /etc/warren/tls/tls.key
TLS__BETWEEN_NODES: {{ .Values.tls.betweenNodes | quote }}
MANAGEMENT__SSL__IP: {{ .Values.listen | quote }}
MANAGEMENT__SSL__CERTFILE: /etc/warren/tls/tls.crt
MANAGEMENT__SSL__KEYFILE: /etc/warren/tls/tls.key
{{- if .Values.tls.ca }}
TLS__CACERTFILE: /etc/warren/tls/ca.crt
{{- end }}
{{- else }}
MANAGEMENT__TCP__IP: {{ .Values.listen | quote }}
{{- end }}
{{- with include "warren.definitions" . | trim }}
LOAD_DEFINITIONS: {{ . }}
{{- end }}
{{- end -}}

{{/* Labels of every object of the chart. */}}
{{- define "cicada.labels" -}}
app.kubernetes.io/name: cicada
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Labels by which the operator's pods are found. */}}
{{- define "cicada.selector" -}}
app.kubernetes.io/name: cicada
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{/* Name of the operator's objects. */}}
{{- define "cicada.name" -}}
{{ printf "%s-operator" .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{/* An image reference: (list $ image). The digest wins over the tag; a registry goes before a bare repository. */}}
{{- define "cicada.image" -}}
{{- $root := index . 0 }}{{ $image := index . 1 -}}
{{- $repository := $image.repository -}}
{{- if $root.Values.global.imageRegistry }}{{ $repository = printf "%s/%s" (trimSuffix "/" $root.Values.global.imageRegistry) $repository }}{{ end -}}
{{- if $image.digest }}{{ printf "%s@%s" $repository $image.digest }}{{ else }}{{ printf "%s:%s" $repository (default $root.Chart.AppVersion $image.tag) }}{{ end -}}
{{- end }}

{{/* What the operator may do in the namespaces that it watches. It reads no Secret. */}}
{{- define "cicada.rules" -}}
- apiGroups: [cicada.dev]
  resources: [persistentagents]
  verbs: [get, list, watch]
- apiGroups: [cicada.dev]
  resources: [agentcycles]
  verbs: [get, list, watch, create, delete]
- apiGroups: [cicada.dev]
  resources: [persistentagents/status, agentcycles/status]
  verbs: [get, patch]
# An ownerReference that blocks deletion needs this where the API server checks it.
- apiGroups: [cicada.dev]
  resources: [persistentagents/finalizers, agentcycles/finalizers]
  verbs: [update]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [pods, events]
  verbs: [get, list]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

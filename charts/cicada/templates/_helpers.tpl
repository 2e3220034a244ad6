{{- define "cicada.fullname" -}}
{{- if contains "cicada" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-cicada" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "cicada.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "cicada.fullname" .) .Values.serviceAccount.name }}{{ else }}{{ required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{- define "cicada.selector" -}}
app.kubernetes.io/name: cicada-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cicada.labels" -}}
{{ include "cicada.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* An image by digest where one is given, with the global registry in place of its own. */}}
{{- define "cicada.image" -}}
{{- $repository := .image.repository }}
{{- with .root.Values.global.imageRegistry }}
{{- $parts := splitList "/" $repository }}
{{- if and (gt (len $parts) 1) (or (contains "." (first $parts)) (contains ":" (first $parts)) (eq "localhost" (first $parts))) }}
{{- $repository = join "/" (rest $parts) }}
{{- end }}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) $repository }}
{{- end }}
{{- if .image.digest }}{{ $repository }}@{{ .image.digest }}{{ else }}{{ $repository }}:{{ default .root.Chart.AppVersion .image.tag }}{{ end }}
{{- end }}

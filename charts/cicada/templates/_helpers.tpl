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

{{- /* A pod that runs one command of the operator's program, by its account, and ends. */}}
{{- define "cicada.commandPod" -}}
restartPolicy: Never
serviceAccountName: {{ include "cicada.serviceAccount" .root }}
automountServiceAccountToken: true
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
containers:
- name: {{ .command }}
  image: {{ include "cicada.image" (dict "root" .root "image" .root.Values.image) | quote }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args:
  - {{ .command }}
  - --config=/etc/cicada/operator.yaml
  - --lease={{ include "cicada.fullname" .root }}
  {{- with .root.Values.watchNamespaces }}
  - --watch-namespaces={{ join "," . }}
  {{- end }}
  env:
  - name: POD_NAMESPACE
    valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
  {{- with .root.Values.resources }}
  resources: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
  volumeMounts:
  - {name: config, mountPath: /etc/cicada, readOnly: true}
volumes:
- name: config
  configMap: {name: {{ include "cicada.fullname" .root }}}
{{- end }}

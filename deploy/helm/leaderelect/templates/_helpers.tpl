{{- define "leaderelect.name" -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "leaderelect.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "leaderelect.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "leaderelect.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "leaderelect.account" -}}
{{ .Values.serviceAccount.create | ternary (default (include "leaderelect.name" .) .Values.serviceAccount.name) (default "default" .Values.serviceAccount.name) }}
{{- end }}

{{- define "leaderelect.store" -}}
{{ default (printf "kubernetes://%s/%s" .Release.Namespace (include "leaderelect.name" .)) .Values.election.store }}
{{- end }}

{{- define "leaderelect.name" -}}
{{- $own := default .Chart.Name .Values.nameOverride }}
{{- $full := .Chart.IsRoot | ternary .Release.Name (printf "%s-%s" .Release.Name $own) }}
{{- default $full .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "leaderelect.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "leaderelect.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "leaderelect.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "leaderelect.metadata" -}}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "leaderelect.labels" . | nindent 2 }}
{{- end }}

{{- define "leaderelect.account" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "leaderelect.name" .) .Values.serviceAccount.name }}
{{- else if include "leaderelect.permitted" . }}
{{- required "serviceAccount.create is false: name the account in serviceAccount.name, which gets the chart's permissions" .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "leaderelect.lease" -}}
{{ default (include "leaderelect.name" .) .Values.election.lease.name }}
{{- end }}

{{- define "leaderelect.store" -}}
{{ default (printf "kubernetes://%s/%s" .Release.Namespace (include "leaderelect.lease" .)) .Values.election.store }}
{{- end }}

{{- /* Not empty if the sidecar asks the API server for anything. */}}
{{- define "leaderelect.permitted" -}}
{{- if or (not .Values.election.store) .Values.leaderService.enabled }}true{{ end }}
{{- end }}

{{- define "leaderelect.milliseconds" -}}
{{- $sum := 0.0 }}
{{- range regexFindAll "[0-9.]+[a-z]+" . -1 }}
{{- $sum = addf $sum (mulf (regexFind "[0-9.]+" . | float64) (get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000) (regexFind "[a-z]+" .))) }}
{{- end }}
{{- $sum }}
{{- end }}

{{- /* The sidecar, for initContainers. It starts before the application, and ends after it, so that
the lease is kept until the application has ended. Its context is the chart's: of a subchart
.Subcharts.leaderelect. */}}
{{- define "leaderelect.sidecar" -}}
{{- if lt (include "leaderelect.milliseconds" .Values.election.term | float64) (mulf 2 (include "leaderelect.milliseconds" .Values.election.skew | float64)) }}
{{- fail (printf "election.term (%s) must be at least twice election.skew (%s)" .Values.election.term .Values.election.skew) }}
{{- end }}
{{- if and .Values.election.readOnly (contains "--secret-file" (join " " .Values.election.args)) }}
{{- fail "election.args: a --secret-file goes with election.readOnly=false, since nobody may POST otherwise" }}
{{- end -}}
- name: election
  image: {{ printf "%s:%s" .Values.election.image.repository (default .Chart.AppVersion .Values.election.image.tag) }}
  imagePullPolicy: {{ .Values.election.image.pullPolicy }}
  restartPolicy: Always
  args:
    - sidecar
    - --listen=:{{ .Values.election.port }}
    - --host-port=:{{ .Values.app.port }}
    - --term={{ .Values.election.term }}
    - --skew={{ .Values.election.skew }}
    - --election-name={{ include "leaderelect.name" . }}
    {{- if .Values.leaderService.enabled }}
    - --endpoint-slice={{ include "leaderelect.name" . }}-leader
    {{- end }}
    {{- if .Values.election.readOnly }}
    - --read-only
    {{- end }}
    {{- with .Values.election.args }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    - {{ include "leaderelect.store" . | quote }}
  env:
    - name: LEADERELECT_ID
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    {{- with .Values.election.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.election.envFrom }}
  envFrom:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    - {name: election, containerPort: {{ .Values.election.port }}}
  startupProbe:
    httpGet: {path: /livez, port: election}
    periodSeconds: 1
    failureThreshold: 60
  livenessProbe:
    httpGet: {path: /livez, port: election}
    periodSeconds: 5
  resources:
    {{- toYaml .Values.election.resources | nindent 4 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
    seccompProfile: {type: RuntimeDefault}
  {{- if include "leaderelect.permitted" . }}
  volumeMounts:
    - {name: election-token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  {{- end }}
{{- end }}

{{- /* The sidecar's token, for volumes: no other container has it. */}}
{{- define "leaderelect.volumes" -}}
{{- if include "leaderelect.permitted" . }}
- name: election-token
  projected:
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3607}
      - configMap:
          name: kube-root-ca.crt
          items: [{key: ca.crt, path: ca.crt}]
      - downwardAPI:
          items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
{{- end }}
{{- end }}

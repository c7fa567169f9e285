{{- define "dispatcher.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "dispatcher.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dispatcher.labels" -}}
{{ include "dispatcher.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "dispatcher.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "dispatcher.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- /* By which KEDA calls the service, from its own namespace. */ -}}
{{- define "dispatcher.host" -}}
{{ include "dispatcher.name" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{- /* A stop takes this long at most; the pod gets ten seconds more. */ -}}
{{- define "dispatcher.terminationGrace" -}}
{{ add (max (int .Values.shutdownGraceSeconds) (add (int .Values.pollForSeconds) 4)) 14 }}
{{- end }}

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

{{- /* Seconds of a duration as the settings have it, as in 90, 90s or 1m 30s; rounded up. */ -}}
{{- define "dispatcher.seconds" -}}
{{- $text := trim . -}}
{{- if regexMatch "^[0-9]+(\\.[0-9]+)?$" $text -}}
{{- int (ceil (float64 $text)) -}}
{{- else if regexMatch "^([0-9]+ *[a-z]+ *)+$" $text -}}
{{- $total := 0 -}}
{{- range regexFindAll "[0-9]+ *[a-z]+" $text -1 -}}
{{- $number := regexFind "^[0-9]+" . | int -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- if has $unit (list "ns" "nsec" "us" "usec" "ms" "msec") -}}
{{- $total = add $total (div $number 1000) 1 -}}
{{- else if has $unit (list "s" "sec" "secs" "second" "seconds") -}}
{{- $total = add $total $number -}}
{{- else if has $unit (list "m" "min" "mins" "minute" "minutes") -}}
{{- $total = add $total (mul $number 60) -}}
{{- else if has $unit (list "h" "hr" "hrs" "hour" "hours") -}}
{{- $total = add $total (mul $number 3600) -}}
{{- else if has $unit (list "d" "day" "days") -}}
{{- $total = add $total (mul $number 86400) -}}
{{- else -}}
{{- fail (printf "`%s` in config: name the time in seconds, or with ms, s, m, h or d" $text) -}}
{{- end -}}
{{- end -}}
{{- $total -}}
{{- else -}}
{{- fail (printf "`%s` in config is not a duration as in 90s" $text) -}}
{{- end -}}
{{- end }}

{{- /* The longest time that `config` or `env` sets for a key, in seconds; 0 if none does. A comment may
count as well, and can only make it longer. */ -}}
{{- define "dispatcher.longest" -}}
{{- $longest := 0 -}}
{{- $pattern := printf "(^|[^a-z-])%s[ \\t]*=[ \\t]*(\"[^\"]*\"|'[^']*'|[0-9.]+)" .key -}}
{{- range regexFindAll $pattern .values.config -1 -}}
{{- $text := splitList "=" . | last | trim | trimAll "\"'" -}}
{{- $longest = max $longest (include "dispatcher.seconds" $text | int) -}}
{{- end -}}
{{- $variable := printf "DISPATCHER_%s" (.key | replace "-" "_" | upper) -}}
{{- range .values.env -}}
{{- if and (eq .name $variable) .value -}}
{{- $longest = max $longest (include "dispatcher.seconds" (toString .value) | int) -}}
{{- end -}}
{{- end -}}
{{- $longest -}}
{{- end }}

{{- /* A stop takes the longer of shutdown-grace and poll-for + 4 at most, plus 4; the pod gets ten
seconds more. Routes that do not say so poll for 20 s. */ -}}
{{- define "dispatcher.terminationGrace" -}}
{{- $grace := include "dispatcher.longest" (dict "key" "shutdown-grace" "values" .Values) | int -}}
{{- $grace = max $grace (int .Values.shutdownGraceSeconds) -}}
{{- $poll := include "dispatcher.longest" (dict "key" "poll-for" "values" .Values) | int -}}
{{- $poll = max $poll (int (.Values.pollForSeconds | default 20)) -}}
{{- add (max (ternary $grace 20 (gt $grace 0)) (add $poll 4)) 14 -}}
{{- end }}

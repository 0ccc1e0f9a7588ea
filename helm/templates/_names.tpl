{{/* Names, labels and images. */}}

{{/* At most 33 characters, so that keda-hpa-NAME-QUEUE is a label's value; a longer one ends in a digest of the whole. */}}
{{- define "batchmill.fullname" -}}
{{- $chart := default .Chart.Name .Values.nameOverride -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name -}}
{{- $name = ternary .Release.Name (printf "%s-%s" .Release.Name $chart) (contains $chart .Release.Name) -}}
{{- end -}}
{{- if gt (len $name) 33 -}}
{{- printf "%s-%s" (trunc 24 $name | trimSuffix "-") (sha256sum $name | trunc 8) -}}
{{- else -}}
{{- trimSuffix "-" $name -}}
{{- end -}}
{{- end -}}

{{- define "batchmill.releaseLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Of one part: {root, component, queue?}. They never change, for a Deployment's selector cannot. */}}
{{- define "batchmill.selectorLabels" -}}
{{ include "batchmill.releaseLabels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- with .queue }}
batchmill/queue: {{ . }}
{{- end }}
{{- end -}}

{{- define "batchmill.labels" -}}
{{ include "batchmill.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "batchmill.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "batchmill.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "batchmill.image" -}}
{{- $image := .Values.image -}}
{{- $registry := default $image.registry .Values.global.imageRegistry -}}
{{- $name := ternary (printf "%s/%s" $registry $image.repository) $image.repository (ne $registry "") -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* A number as it was written: Go prints large ones with an exponent. */}}
{{- define "batchmill.number" -}}
{{- if eq (floor .) (float64 .) -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- end -}}

{{/* The variable of one of `limits`: BATCHMILL_DRAIN_TIMEOUT_S for drainTimeoutSeconds. */}}
{{- define "batchmill.optionEnv" -}}
BATCHMILL_{{ regexReplaceAll "Seconds$" . "S" | snakecase | upper }}
{{- end -}}

{{/* CPUs in thousandths. */}}
{{- define "batchmill.milliCPU" -}}
{{- $cpu := toString . -}}
{{- if hasSuffix "m" $cpu -}}{{ trimSuffix "m" $cpu | int64 }}{{- else -}}{{ mulf (float64 $cpu) 1000 | int64 }}{{- end -}}
{{- end -}}

{{/* The enabled queues, each with queueDefaults below its own values: a map as YAML. */}}
{{- define "batchmill.queues" -}}
{{- $queues := dict -}}
{{- range $name, $own := .Values.queues -}}
{{- $queue := mergeOverwrite (deepCopy $.Values.queueDefaults) (deepCopy (default dict $own)) -}}
{{- if $queue.enabled -}}
{{- $_ := set $queues $name $queue -}}
{{- end -}}
{{- end -}}
{{- toYaml $queues -}}
{{- end -}}

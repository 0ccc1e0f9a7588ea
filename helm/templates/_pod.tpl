{{/* What the pods have in common. */}}

{{/* {root, component, queue?}; without the chart's version, so that a new chart alone restarts nobody. */}}
{{- define "batchmill.podMetadata" -}}
labels:
  {{- include "batchmill.selectorLabels" . | nindent 2 }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .root.Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "batchmill.podSecurity" -}}
serviceAccountName: {{ include "batchmill.serviceAccountName" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{- define "batchmill.containerBasics" -}}
image: {{ include "batchmill.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* {cpu, cpuLimit, memory, devices?}: memory is requested and limited alike, so that a node never overcommits it. */}}
{{- define "batchmill.resources" -}}
resources:
  requests:
    cpu: {{ .cpu | quote }}
    memory: {{ .memory }}
    {{- range $name, $count := .devices }}
    {{ $name }}: {{ $count }}
    {{- end }}
  limits:
    {{- with .cpuLimit }}
    cpu: {{ . | quote }}
    {{- end }}
    memory: {{ .memory }}
    {{- range $name, $count := .devices }}
    {{ $name }}: {{ $count }}
    {{- end }}
{{- end -}}

{{/* {nodeSelector, tolerations, affinity, priorityClassName, runtimeClassName?} */}}
{{- define "batchmill.placement" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "batchmill.secretEnv" -}}
valueFrom:
  secretKeyRef:
    name: {{ .name }}
    key: {{ .key }}
{{- end -}}

{{/* {root, urlKey?: a key of its own instead of the workers' address} */}}
{{- define "batchmill.brokerEnv" -}}
{{- $broker := .root.Values.broker -}}
{{- $urlKey := default $broker.urlKey .urlKey -}}
{{- if not $urlKey }}
- name: BROKER_PASSWORD
  {{- include "batchmill.secretEnv" (dict "name" $broker.existingSecret "key" $broker.passwordKey) | nindent 2 }}
- name: BATCHMILL_BROKER_URL
  {{- $scheme := ternary "rediss" "redis" $broker.tls.enabled }}
  {{- $query := ternary "?ssl_ca_certs=/etc/batchmill/broker/ca.crt" "" (eq (include "batchmill.hasCa" $broker.tls) "true") }}
  value: {{ printf "%s://%s:$(BROKER_PASSWORD)@%s:%d/%d%s" $scheme $broker.username $broker.host (int $broker.port) (int $broker.database) $query | quote }}
{{- else }}
- name: BATCHMILL_BROKER_URL
  {{- include "batchmill.secretEnv" (dict "name" $broker.existingSecret "key" $urlKey) | nindent 2 }}
{{- end }}
- name: BATCHMILL_LOG_FORMAT
  value: json
- name: BATCHMILL_LOG_LEVEL
  value: {{ .root.Values.logLevel }}
- name: BATCHMILL_LEASE_S
  value: {{ include "batchmill.number" .root.Values.leaseSeconds | quote }}
{{- end -}}

{{- define "batchmill.s3Env" -}}
{{- $s3 := .Values.s3 -}}
{{- with $s3.existingSecret }}
- name: AWS_ACCESS_KEY_ID
  {{- include "batchmill.secretEnv" (dict "name" . "key" $s3.accessKeyIdKey) | nindent 2 }}
- name: AWS_SECRET_ACCESS_KEY
  {{- include "batchmill.secretEnv" (dict "name" . "key" $s3.secretAccessKeyKey) | nindent 2 }}
{{- end }}
{{- with $s3.region }}
- name: AWS_DEFAULT_REGION
  value: {{ . | quote }}
{{- end }}
{{- with $s3.endpoint }}
- name: AWS_ENDPOINT_URL_S3
  value: {{ . | quote }}
{{- end }}
{{- if eq (include "batchmill.hasCa" $s3) "true" }}
- name: AWS_CA_BUNDLE
  value: /etc/batchmill/s3/ca.crt
{{- end }}
{{- end -}}

{{- define "batchmill.hasCa" -}}
{{- if or .caConfigMap .caSecret -}}true{{- end -}}
{{- end -}}

{{/* {root} */}}
{{- define "batchmill.mounts" -}}
- name: tmp
  mountPath: /tmp
{{- if eq (include "batchmill.hasCa" .root.Values.broker.tls) "true" }}
- name: broker-ca
  mountPath: /etc/batchmill/broker
  readOnly: true
{{- end }}
{{- if eq (include "batchmill.hasCa" .root.Values.s3) "true" }}
- name: s3-ca
  mountPath: /etc/batchmill/s3
  readOnly: true
{{- end }}
{{- with .root.Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* {root, temporary?: size of /tmp} */}}
{{- define "batchmill.volumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: {{ default "256Mi" .temporary }}
{{- with .root.Values.broker.tls }}
{{- if eq (include "batchmill.hasCa" .) "true" }}
{{ include "batchmill.caVolume" (dict "name" "broker-ca" "ca" .) }}
{{- end }}
{{- end }}
{{- with .root.Values.s3 }}
{{- if eq (include "batchmill.hasCa" .) "true" }}
{{ include "batchmill.caVolume" (dict "name" "s3-ca" "ca" .) }}
{{- end }}
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "batchmill.caVolume" -}}
- name: {{ .name }}
  {{- if .ca.caSecret }}
  secret:
    secretName: {{ .ca.caSecret }}
  {{- else }}
  configMap:
    name: {{ .ca.caConfigMap }}
  {{- end }}
    items:
      - key: {{ .ca.caKey }}
        path: ca.crt
{{- end -}}

{{/* Answered by the process itself on its HTTP port: no shell, no broker, no second Python. */}}
{{- define "batchmill.probes" -}}
ports:
  - name: http
    containerPort: 9464
startupProbe:
  httpGet:
    path: /live
    port: http
  periodSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet:
    path: /live
    port: http
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet:
    path: /ready
    port: http
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}

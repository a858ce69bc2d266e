"""The Kubernetes resources of docker/kubernetes, as strictly as the cluster's own schemas, but only the fields that are used there."""
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, TypeAdapter

from strict_yaml import Strict

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
PortName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=15)]
LabelKey = Annotated[str, StringConstraints(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")]
LabelValue = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", max_length=63)]
Labels = dict[LabelKey, LabelValue]
Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")]
Duration = Annotated[str, StringConstraints(pattern=r"^([0-9]+(ms|s|m|h))+$")]
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[int, Field(ge=1)]


class Meta(Strict):
    name: Name
    labels: Labels = {}


class Selector(Strict):
    matchLabels: Labels


class HttpGet(Strict):
    path: Annotated[str, StringConstraints(pattern="^/")]
    port: Port | PortName


class Probe(Strict):
    httpGet: HttpGet
    periodSeconds: Seconds = 10
    timeoutSeconds: Seconds = 1
    failureThreshold: Seconds = 3


class Sleep(Strict):
    seconds: Seconds


class Hook(Strict):
    sleep: Sleep


class Lifecycle(Strict):
    preStop: Hook


class ContainerPort(Strict):
    name: PortName
    containerPort: Port


class Capabilities(Strict):
    drop: list[Literal["ALL"]]


class ContainerSecurity(Strict):
    allowPrivilegeEscalation: bool
    readOnlyRootFilesystem: bool
    capabilities: Capabilities


class Mount(Strict):
    name: Name
    mountPath: Annotated[str, StringConstraints(pattern="^/")]
    readOnly: bool = False


class Resources(Strict):
    requests: dict[Literal["cpu", "memory"], Quantity] = {}
    limits: dict[Literal["cpu", "memory", "nvidia.com/gpu"], Quantity | int] = {}


class Container(Strict):
    name: Name
    image: str
    ports: list[ContainerPort]
    securityContext: ContainerSecurity
    startupProbe: Probe
    readinessProbe: Probe
    livenessProbe: Probe
    lifecycle: Lifecycle
    volumeMounts: list[Mount]
    resources: Resources


class ConfigMapVolume(Strict):
    name: Name


class ClaimVolume(Strict):
    claimName: Name
    readOnly: bool = False


class EmptyDir(Strict):
    sizeLimit: Quantity


class Volume(Strict):
    name: Name
    configMap: ConfigMapVolume | None = None
    persistentVolumeClaim: ClaimVolume | None = None
    emptyDir: EmptyDir | None = None


class Seccomp(Strict):
    type: Literal["RuntimeDefault", "Unconfined", "Localhost"]


class PodSecurity(Strict):
    runAsNonRoot: bool
    runAsUser: int
    runAsGroup: int
    fsGroup: int
    fsGroupChangePolicy: Literal["OnRootMismatch", "Always"]
    seccompProfile: Seccomp


class Spread(Strict):
    maxSkew: Seconds
    topologyKey: LabelKey
    whenUnsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"]
    labelSelector: Selector


class Toleration(Strict):
    key: LabelKey
    operator: Literal["Exists", "Equal"]
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class PodSpec(Strict):
    terminationGracePeriodSeconds: Seconds
    automountServiceAccountToken: bool
    enableServiceLinks: bool
    securityContext: PodSecurity
    topologySpreadConstraints: list[Spread]
    nodeSelector: Labels = {}
    tolerations: list[Toleration] = []
    containers: list[Container]
    volumes: list[Volume]


class PodMeta(Strict):
    labels: Labels


class PodTemplate(Strict):
    metadata: PodMeta
    spec: PodSpec


class RollingUpdate(Strict):
    maxUnavailable: int
    maxSurge: int


class Strategy(Strict):
    type: Literal["RollingUpdate"]
    rollingUpdate: RollingUpdate


class DeploymentSpec(Strict):
    replicas: Seconds
    strategy: Strategy
    selector: Selector
    template: PodTemplate


class Deployment(Strict):
    apiVersion: Literal["apps/v1"]
    kind: Literal["Deployment"]
    metadata: Meta
    spec: DeploymentSpec


class ServicePort(Strict):
    name: PortName
    port: Port
    targetPort: Port | PortName
    protocol: Literal["TCP"]


class ServiceSpec(Strict):
    type: Literal["ClusterIP"]
    selector: Labels
    ports: list[ServicePort]


class Service(Strict):
    apiVersion: Literal["v1"]
    kind: Literal["Service"]
    metadata: Meta
    spec: ServiceSpec


class ConfigMap(Strict):
    apiVersion: Literal["v1"]
    kind: Literal["ConfigMap"]
    metadata: Meta
    data: dict[str, str]


class StorageRequest(Strict):
    storage: Quantity


class StorageResources(Strict):
    requests: StorageRequest


class ClaimSpec(Strict):
    accessModes: list[Literal["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"]]
    resources: StorageResources


class PersistentVolumeClaim(Strict):
    apiVersion: Literal["v1"]
    kind: Literal["PersistentVolumeClaim"]
    metadata: Meta
    spec: ClaimSpec


class DisruptionSpec(Strict):
    maxUnavailable: int
    selector: Selector


class PodDisruptionBudget(Strict):
    apiVersion: Literal["policy/v1"]
    kind: Literal["PodDisruptionBudget"]
    metadata: Meta
    spec: DisruptionSpec


class MetricsEndpoint(Strict):
    port: PortName
    path: str
    interval: Duration


class PodMonitorSpec(Strict):
    jobLabel: LabelKey
    selector: Selector
    podMetricsEndpoints: list[MetricsEndpoint]


class PodMonitor(Strict):
    apiVersion: Literal["monitoring.coreos.com/v1"]
    kind: Literal["PodMonitor"]
    metadata: Meta
    spec: PodMonitorSpec


class AlertLabels(Strict):
    severity: Literal["page", "ticket"]


class Annotations(Strict):
    summary: str
    description: str


class Rule(Strict):
    alert: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z]+$")]
    expr: str
    for_: Annotated[Duration, Field(alias="for")] = "0s"
    labels: AlertLabels
    annotations: Annotations


class RuleGroup(Strict):
    name: str
    rules: list[Rule]


class PrometheusRuleSpec(Strict):
    groups: list[RuleGroup]


class PrometheusRule(Strict):
    apiVersion: Literal["monitoring.coreos.com/v1"]
    kind: Literal["PrometheusRule"]
    metadata: Meta
    spec: PrometheusRuleSpec


class PortNumber(Strict):
    number: Port


class PickerRef(Strict):
    name: Name
    port: PortNumber
    failureMode: Literal["FailOpen", "FailClose"]


class PoolSpec(Strict):
    selector: Selector
    targetPorts: Annotated[list[PortNumber], Field(min_length=1, max_length=8)]
    endpointPickerRef: PickerRef


class InferencePool(Strict):
    apiVersion: Literal["inference.networking.k8s.io/v1"]
    kind: Literal["InferencePool"]
    metadata: Meta
    spec: PoolSpec


class Listener(Strict):
    name: Name
    port: Port
    protocol: Literal["HTTP", "HTTPS", "TLS", "TCP"]


class GatewaySpec(Strict):
    gatewayClassName: Name
    listeners: list[Listener]


class Gateway(Strict):
    apiVersion: Literal["gateway.networking.k8s.io/v1"]
    kind: Literal["Gateway"]
    metadata: Meta
    spec: GatewaySpec


class ParentRef(Strict):
    name: Name


class PathMatch(Strict):
    type: Literal["Exact", "PathPrefix"]
    value: Annotated[str, StringConstraints(pattern="^/")]


class RouteMatch(Strict):
    path: PathMatch


class BackendRef(Strict):
    group: str
    kind: Literal["InferencePool"]
    name: Name


class Timeouts(Strict):
    request: Duration


class RouteRule(Strict):
    matches: list[RouteMatch]
    backendRefs: list[BackendRef]
    timeouts: Timeouts


class RouteSpec(Strict):
    parentRefs: list[ParentRef]
    rules: list[RouteRule]


class HTTPRoute(Strict):
    apiVersion: Literal["gateway.networking.k8s.io/v1"]
    kind: Literal["HTTPRoute"]
    metadata: Meta
    spec: RouteSpec


class KustomizeLabels(Strict):
    pairs: Labels
    includeSelectors: bool
    includeTemplates: bool


class KustomizeImage(Strict):
    name: str
    newName: str
    newTag: str


class KustomizePatch(Strict):
    path: str


class Kustomization(Strict):
    apiVersion: Literal["kustomize.config.k8s.io/v1beta1"]
    kind: Literal["Kustomization"]
    resources: list[str]
    labels: list[KustomizeLabels] = []
    images: list[KustomizeImage] = []
    patches: list[KustomizePatch] = []


RESOURCE = TypeAdapter(Annotated[
    Deployment | Service | ConfigMap | PersistentVolumeClaim | PodDisruptionBudget | PodMonitor | PrometheusRule | InferencePool | Gateway |
    HTTPRoute,
    Field(discriminator="kind")])

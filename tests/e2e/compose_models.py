"""docker/compose.yaml and what it mounts, as strictly as the tools' own schemas, but only the keys that are used there."""
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from strict_yaml import Strict

Duration = Annotated[str, StringConstraints(pattern=r"^([0-9]+(ms|s|m|h|d))+$")]


class Build(Strict):
    context: str
    dockerfile: str
    args: dict[str, str]


class Service(Strict):
    image: str
    build: Build | None = None
    command: list[str] = []
    environment: dict[str, str] = {}
    ports: list[Annotated[str, StringConstraints(pattern=r"^127\.0\.0\.1:\d+:\d+$")]]
    volumes: list[str]
    read_only: bool = False
    tmpfs: list[str] = []
    cap_drop: list[Literal["ALL"]]
    security_opt: list[Literal["no-new-privileges:true"]]
    ulimits: dict[Literal["rtprio", "nofile"], int] = {}
    stop_grace_period: Duration = "10s"
    depends_on: list[str] = []
    restart: Literal["no", "always", "on-failure", "unless-stopped"]


class Volume(Strict):
    pass


class Compose(Strict):
    name: str
    services: dict[str, Service]
    volumes: dict[str, Volume]


class Target(Strict):
    targets: list[str]


class Scrape(Strict):
    job_name: str
    static_configs: list[Target]


class Global(Strict):
    scrape_interval: Duration
    evaluation_interval: Duration


class Prometheus(Strict):
    global_: Annotated[Global, Field(alias="global")]
    rule_files: list[str]
    scrape_configs: list[Scrape]


class Datasource(Strict):
    name: str
    uid: str
    type: Literal["prometheus"]
    access: Literal["proxy"]
    url: str
    isDefault: bool


class Datasources(Strict):
    apiVersion: Literal[1]
    datasources: list[Datasource]


class ProviderOptions(Strict):
    path: str


class Provider(Strict):
    name: str
    type: Literal["file"]
    options: ProviderOptions


class Providers(Strict):
    apiVersion: Literal[1]
    providers: list[Provider]

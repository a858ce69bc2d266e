"""Reading YAML into models that know every key that is allowed: an unknown or doubled key, or a value of another kind, is an error."""
import pathlib

import pydantic
import yaml


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True, populate_by_name=True,
                                       alias_generator=lambda name: name.rstrip("_"))


class _Loader(yaml.SafeLoader):
    """YAML's own reader takes the last of two equal keys without a word."""


def _mapping(loader, node, deep=False):
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    for key in keys:
        if keys.count(key) > 1:
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} stands twice", node.start_mark)
    return dict(zip(keys, (loader.construct_object(value, deep=True) for _, value in node.value)))


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def documents(source: pathlib.Path | str) -> list[dict]:
    text = source.read_text() if isinstance(source, pathlib.Path) else source
    return list(yaml.load_all(text, Loader=_Loader))

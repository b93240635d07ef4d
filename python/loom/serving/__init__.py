"""Networks and language models that answer over HTTP: `loom serve`, or an application for other servers.

Needs the extra "serve": `pip install 'loom-nn[serve]'`. docs/serving.md has the requests and answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from loom._settings.suggestions import shown
from loom.engine import engine_of
from loom.errors import ConfigError
from loom.extras import require
from loom.serving.settings import LanguageSettings, ServingSettings

if TYPE_CHECKING:
    from loom.network import Network
    from loom.text import LanguageModel

__all__ = ["LanguageSettings", "ServingSettings", "create_app", "create_language_app"]


def create_app(net: Network, settings: ServingSettings | None = None) -> Any:  # noqa: ANN401 - FastAPI's
    """Makes an application that answers with what a network predicts.

    Args:
        net: The network, on the device that it is to compute on.
        settings: How many samples at once, and the limits; the defaults where None.

    Returns:
        A FastAPI application, which any ASGI server runs and other applications mount.

    Raises:
        ConfigError: Something else is given.
        MissingExtraError: FastAPI or prometheus-client is not installed.

    Examples:
        >>> net = loom.Sequential([nn.Dense(2)], input_shape=3)
        >>> app = loom.serving.create_app(net)  # doctest: +SKIP
        >>> # uvicorn.run(app)
    """
    for module in ("fastapi", "prometheus_client"):
        require(module, extra="serve", purpose="serving networks")
    engine_of(net).check_fixed("serving")
    chosen = ServingSettings() if settings is None else settings
    if not isinstance(chosen, ServingSettings):
        raise ConfigError(f"settings must be a loom.serving.ServingSettings, got {shown(settings)}")
    from loom.serving.application import application

    return application(net, chosen)


def create_language_app(
    model: LanguageModel,
    settings: LanguageSettings | None = None,
    *,
    draft: LanguageModel | Literal["lookup"] | None = None,
) -> Any:  # noqa: ANN401
    """Makes an application that completes, chats and embeds, in the form of OpenAI's interface.

    Args:
        model: The model, its network on the device that it is to compute on.
        settings: Its name, the key, and the limits; the defaults where None.
        draft: What guesses tokens ahead while one answer is made, as in `loom.text.Options`; answers are
            those without.

    Returns:
        A FastAPI application, which any ASGI server runs and other applications mount.

    Raises:
        ConfigError: Something else is given.
        StateError: There is a draft, and the model has recurrent layers.
        MissingExtraError: FastAPI or prometheus-client is not installed.

    Examples:
        >>> model = loom.text.load("Qwen2.5-0.5B-Instruct")  # doctest: +SKIP
        >>> app = loom.serving.create_language_app(model)  # doctest: +SKIP
        >>> # uvicorn.run(app)
    """
    for module in ("fastapi", "prometheus_client"):
        require(module, extra="serve", purpose="serving language models")
    # A text, such as a path, has an `encode`, too.
    if not hasattr(model, "tokens_behind"):
        raise ConfigError(
            "create_language_app: expected a loom.text.LanguageModel, which loom.text.load(path) returns, "
            f"got {type(model).__name__}; create_app serves networks"
        )
    chosen = LanguageSettings() if settings is None else settings
    if not isinstance(chosen, LanguageSettings):
        raise ConfigError(f"settings must be a loom.serving.LanguageSettings, got {shown(settings)}")
    from loom.serving.language import language_application

    return language_application(model, chosen, draft)

"""scikit-learn's manners, without scikit-learn: parameters by name, a repr, and what its tools ask of an estimator."""

import importlib
import inspect
import sys
from typing import Any, Self

__all__ = ["Params"]


class Params:
    """For classes whose constructor does nothing but store its arguments under their names."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments, by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Change some of the constructor's arguments."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"{name!r} is not a parameter: write one of {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = {k: v for k, v in self.get_params().items() if v is not defaults[k].default}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in changed.items())})"

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn's own tools may expect; only they call it."""
        utils = importlib.import_module("sklearn.utils")
        return utils.Tags(
            estimator_type=None,
            target_tags=utils.TargetTags(required=True, multi_output=True),
            input_tags=utils.InputTags(three_d_array=True, string=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return any(name.endswith("_") and not name.startswith("_") for name in vars(self))

    def _once_fitted(self, name: str) -> Any:
        """An attribute that fit leaves; before that, scikit-learn's own error where it is loaded (a ValueError)."""
        if hasattr(self, name):
            return getattr(self, name)
        loaded = sys.modules.get("sklearn.exceptions")
        error = ValueError if loaded is None else loaded.NotFittedError
        raise error(f"this {type(self).__name__} is not fitted yet: call fit(x, y) first")

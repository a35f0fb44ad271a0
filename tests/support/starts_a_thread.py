"""A module that starts a thread when it is imported, as some libraries do."""

from __future__ import annotations

import threading
import time

from tests.support.misbehaving import count, limits, open_socket

__all__ = ["count", "limits", "open_socket"]

threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()

"""A store in etcd, for several managers of which one leads.

See docs/reference/manager.md ("Several managers"). Needs the extra ``manager``.
"""

from .asks import leader_of, version_of
from .client import Etcd, Tls
from .store import EtcdStore

__all__ = ["Etcd", "EtcdStore", "Tls", "leader_of", "version_of"]

"""Executable specification of the fabric's protocol: small models, searched completely.

Each file is one idea. :mod:`.search` visits every state of a model; :mod:`.session`, :mod:`.quiet`,
:mod:`.arq`, :mod:`.credits`, :mod:`.queues`, :mod:`.order` and :mod:`.bindings` are the models.
:mod:`.catalogue` lists the models that must hold, and the flawed models whose fault must be found.
:mod:`.chart` draws a fault. The command ``dxpu spec`` is :mod:`dxpu_cli.commands.spec`;
:mod:`dxpu_cli.pages.fabric_spec` makes parts of ``docs/reference/fabric-spec.md``, which also lists
the limits of the models.
"""

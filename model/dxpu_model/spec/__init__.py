"""The fabric's protocol as small models that are searched completely: what holds, and what breaks.

Each file is one idea. :mod:`.search` visits every state of a model; :mod:`.session`, :mod:`.quiet`,
:mod:`.arq`, :mod:`.credits`, :mod:`.queues`, :mod:`.order` and :mod:`.bindings` are the models;
:mod:`.catalogue` lists which of them must hold and which must be found broken;
:mod:`dxpu_cli.commands.spec` is ``dxpu spec``; :mod:`.chart` draws,
:mod:`dxpu_cli.pages.fabric_spec` makes parts of ``docs/fabric-spec.md``, which says what the models
leave out.
"""

"""Types of all resources: those of DMTF, by version, and the own ones, as CSDL.

Ref: DSP0266, 9 "Data model"; OData CSDL 4.0
"""

__all__ = ["OWN_SCHEMAS", "STANDARD", "typed"]

#: Versions that are used of DMTF's schemas.
STANDARD: dict[str, tuple[str, ...]] = {
    "ServiceRoot": ("v1_19_0",), "ComputerSystemCollection": (), "ComputerSystem": ("v1_22_0",),
    "ProcessorCollection": (), "Processor": ("v1_20_0",),
    "ChassisCollection": (), "Chassis": ("v1_25_0",), "PCIeSlots": ("v1_6_0",),
    "PCIeDeviceCollection": (), "PCIeDevice": ("v1_18_0",),
    "FabricCollection": (), "Fabric": ("v1_3_0",), "SwitchCollection": (), "Switch": ("v1_9_0",),
    "PortCollection": (), "Port": ("v1_16_0",), "EndpointCollection": (),
    "Endpoint": ("v1_8_0",), "ZoneCollection": (), "Zone": ("v1_6_0",),
    "CompositionService": ("v1_2_0",), "ResourceBlockCollection": (), "ResourceBlock": ("v1_4_0",),
    "CompositionReservationCollection": (), "CompositionReservation": ("v1_0_0",),
    "Manifest": ("v1_1_0",), "TaskService": ("v1_2_0",), "TaskCollection": (), "Task": ("v1_7_0",),
    "EventService": ("v1_10_0",), "EventDestinationCollection": (),
    "EventDestination": ("v1_15_0",), "Event": ("v1_10_0",),
    "SessionService": ("v1_1_9",), "SessionCollection": (), "Session": ("v1_7_0",),
    "AccountService": ("v1_15_0",), "ManagerAccountCollection": (),
    "ManagerAccount": ("v1_12_0",), "RoleCollection": (), "Role": ("v1_3_0",),
    "ManagerCollection": (), "Manager": ("v1_19_0",),
    "MessageRegistryFileCollection": (), "MessageRegistryFile": ("v1_1_0",),
    "MessageRegistry": ("v1_6_0",), "Message": ("v1_2_0",), "Resource": ("v1_19_0",),
    "Redundancy": ("v1_4_0",), "PhysicalContext": (), "Protocol": (),
}


def typed(name: str) -> str:
    """Type of a resource, as its annotation says."""
    versions = STANDARD.get(name)
    if versions is None:
        return f"#{name}.v1_0_0.{name}"
    return f"#{name}.{versions[0]}.{name}" if versions else f"#{name}.{name}"


_EDM = 'xmlns="http://docs.oasis-open.org/odata/ns/edm"'
_TYPES = {"string": "Edm.String", "integer": "Edm.Int64", "number": "Edm.Decimal",
          "boolean": "Edm.Boolean", "strings": "Collection(Edm.String)",
          "paths": "Collection(DxPU.v1_0_0.Path)",
          "spares": "DxPU.v1_0_0.Spares", "models": "Collection(DxPU.v1_0_0.ModelSpares)",
          "time": "Edm.DateTimeOffset"}
_PERMISSIONS = {"r": "Read", "w": "ReadWrite"}

#: Objects in ``Oem/DxPU``: name, type and permission, and meaning of each property.
_COMPLEX: dict[str, tuple[tuple[str, str, str], ...]] = {
    "ComputerSystem": (
        ("Label", "string w", "The name of the host for people"),
        ("Closed", "boolean w", "The host gets nothing new"),
        ("Agent", "boolean w", "The host has an agent, whose word is awaited with each attach"),
        ("NodeNumber", "integer r", "The number of the proxy in the fabric"),
        ("Ports", "integer r", "The number of hot-plug ports"),
        ("FreePorts", "integer r", "The number of ports without a GPU"),
        ("Address", "string r", "The factory address of the proxy"),
        ("Paths", "paths r", "The paths of the proxy to the fabric"),
        ("Trouble", "string r", "The reason why the proxy does not answer")),
    "Chassis": (
        ("Label", "string w", "The name of the box for people"),
        ("Closed", "boolean w", "Nothing new is given of the box"),
        ("Kind", "string w", "The kind of the box: joined or switch"),
        ("NodeNumber", "integer r", "The number of the proxy in the fabric"),
        ("Slots", "integer r", "The number of slots"),
        ("Address", "string r", "The factory address of the proxy"),
        ("Paths", "paths r", "The paths of the proxy to the fabric"),
        ("Trouble", "string r", "The reason why the proxy does not answer")),
    "ResourceBlock": (
        ("State", "string r", "The state of the GPU in the pool"),
        ("Cause", "string r", "The cause of the last change of the state"),
        ("Since", "time r", "The time of the last change of the state"),
        ("Model", "string w", "The model of the GPU"),
        ("Box", "string r", "The serial number of the box"),
        ("Slot", "integer r", "The slot in the box"),
        ("Host", "string r", "The serial number of the host that has the GPU"),
        ("Port", "integer r", "The port of that host"),
        ("Path", "integer r", "The path of the fabric to that host"),
        ("Generation", "integer r", "The generation of the newest binding"),
        ("Task", "integer r", "The task that works on the GPU"),
        ("Request", "integer r", "The request that has the GPU"),
        ("Broken", "string r", "What is wrong with the GPU"),
        ("SerialNumber", "string r", "The serial number of the GPU, as an agent has said"),
        ("Evidence", "strings r", "The evidence that the host has the GPU"),
        ("WindowsSince", "time r", "Since when the port of the host has windows for the GPU"),
        ("Confirmed", "time r", "The time at which the agent of the host has confirmed the GPU"),
        ("Missing", "string r", "What an attach still waits for"),
        ("MissingSince", "time r", "Since when the attach waits for that"),
        ("MissingUntil", "time r", "When the attach fails without that; null: it comes by itself")),
    "Task": (
        ("Evidence", "strings r", "What is seen of each GPU, and what is missing"),),
    "EventService": (
        ("Newest", "integer r", "The number of the newest event"),),
    "Manager": (
        ("Epoch", "integer r", "The fencing epoch of all commands of the manager"),
        ("Trouble", "string r", "The reason why the store cannot be written")),
}
#: Objects in these: name, meaning, and properties.
_PARTS: tuple[tuple[str, str, tuple[tuple[str, str, str], ...]], ...] = (
    ("Path", "A path of a proxy to the fabric", (
        ("Path", "integer r", "The number of the path"),
        ("Link", "boolean r", "The path has a link"),
        ("Gpus", "integer r", "The number of GPUs that the path carries"))),
    ("Spares", "How many spares are wanted, and held", (
        ("Keep", "boolean w", "The manager keeps free GPUs back as spares by itself"),
        ("Probability", "number w", "The probability that no failed GPU is without a spare"),
        ("RepairDays", "number w", "The days from a failure until a GPU is there again"),
        ("AnnualFailureRate", "number w", "Failures of a GPU in a year; null: as measured"),
        ("Models", "models r", "The spares of each model"))),
    ("ModelSpares", "Spares of a model", (
        ("Model", "string r", "The model; null: GPUs whose model nobody has said"),
        ("Gpus", "integer r", "The number of GPUs in service, spares among them"),
        ("Failures", "integer r", "The number of failures that were seen"),
        ("GpuYears", "number r", "The GPU-years in which these failures were seen"),
        ("AnnualFailureRate", "number r", "Failures of a GPU in a year, by which the plan goes"),
        ("InRepair", "number r", "The number of GPUs in repair at a time, as expected"),
        ("Wanted", "integer r", "The number of spares that are wanted"),
        ("Held", "integer r", "The number of spares that are there"),
        ("Probability", "number r", "The probability that no failed GPU is without a spare, with "
         "those that are held"))))
#: The resource of a request for GPUs.
_REQUEST = (
    ("Host", "string r", "The serial number of the host that gets the GPUs"),
    ("Count", "integer r", "The number of GPUs"),
    ("Model", "string r", "The model of the GPUs; empty: any"),
    ("Where", "string r", "Where the GPUs may be: any, box, joined or apart"),
    ("Path", "integer r", "The path of the fabric to the GPUs; null: any"),
    ("Priority", "integer r", "The priority; the highest one has the turn first"),
    ("LeaseSeconds", "number w", "The time with the GPUs; null: without an end"),
    ("Keep", "boolean r", "GPUs are kept for the host, and attached at a word"),
    ("Phase", "string r", "The progress of the request"),
    ("Asked", "time r", "The time of the request"),
    ("Until", "time r", "The end of the lease"),
    ("Explanation", "string r", "What the request waits for, and when it could start"),
    ("Reason", "string r", "Why the last attempt has failed"),
)


#: Actions in ``Actions/Oem``: name, and meaning.
_ACTIONS = (
    ("Attach", "Attach several resource blocks to the system, all or none"),
    ("Detach", "Detach several resource blocks from the system, all or none"),
    ("Admit", "Let a quarantined GPU be given away"),
    ("SetAside", "Let nobody have an unused GPU"),
    ("Spare", "Keep a free GPU back as a replacement"),
    ("Unspare", "Keep a GPU back no longer"),
    ("Retire", "Forget a GPU that leaves its slot"),
    ("Confirm", "Say that the system sees a GPU"),
    ("Balance", "Spread GPUs over the paths with a link again"),
    ("GiveUp", "Take a broken GPU from its host by force"),
)


def _action(name: str, said: str, bound: str) -> str:
    return (f'      <Action Name="{name}" IsBound="true">\n'
            f'        <Parameter Name="{bound.split(".")[-1]}" Type="{bound}"/>\n'
            f'        <Annotation Term="OData.Description" String="{said}."/>\n'
            "      </Action>\n")


def _property(name: str, kind: str, said: str) -> str:
    word, permission = kind.split()
    return (f'        <Property Name="{name}" Type="{_TYPES[word]}">\n'
            f'          <Annotation Term="OData.Permissions" '
            f'EnumMember="OData.Permission/{_PERMISSIONS[permission]}"/>\n'
            f'          <Annotation Term="OData.Description" String="{said}."/>\n'
            f'          <Annotation Term="OData.LongDescription" String="{said}."/>\n'
            "        </Property>\n")


def _file(references: tuple[str, ...], *schemas: str) -> str:
    head = ('<?xml version="1.0" encoding="UTF-8"?>\n<edmx:Edmx xmlns:edmx='
            '"http://docs.oasis-open.org/odata/ns/edmx" Version="4.0">\n'
            '  <edmx:Reference Uri="http://docs.oasis-open.org/odata/odata/v4.0/errata03/csd01/'
            'complete/vocabularies/Org.OData.Core.V1.xml">\n'
            '    <edmx:Include Namespace="Org.OData.Core.V1" Alias="OData"/>\n'
            "  </edmx:Reference>\n"
            '  <edmx:Reference Uri="http://redfish.dmtf.org/schemas/v1/RedfishExtensions_v1.xml">\n'
            '    <edmx:Include Namespace="RedfishExtensions.v1_0_0" Alias="Redfish"/>\n'
            "  </edmx:Reference>\n")
    for name in references:
        at = (f"/redfish/v1/Schemas/{name}_v1.xml" if name.startswith("DxPU")
              else f"http://redfish.dmtf.org/schemas/v1/{name}_v1.xml")
        spaces = [name, *(f"{name}.{version}" for version in STANDARD.get(name, ("v1_0_0",)))]
        if name == "Resource":
            spaces = ["Resource", "Resource.v1_0_0"]
        head += f'  <edmx:Reference Uri="{at}">\n' + "".join(
            f'    <edmx:Include Namespace="{space}"/>\n' for space in spaces
        ) + "  </edmx:Reference>\n"
    return (head + "  <edmx:DataServices>\n" + "".join(schemas)
            + "  </edmx:DataServices>\n</edmx:Edmx>\n")


def _schema(space: str, content: str) -> str:
    return f'    <Schema {_EDM} Namespace="{space}">\n{content}    </Schema>\n'


def _oem() -> str:
    content = "".join(
        f'      <ComplexType Name="{name}" BaseType="Resource.OemObject">\n'
        '        <Annotation Term="OData.AdditionalProperties" Bool="false"/>\n'
        f'        <Annotation Term="OData.Description" String="What a pool adds to {name}."/>\n'
        + "".join(_property(*one) for one in properties) + "      </ComplexType>\n"
        for name, properties in _COMPLEX.items())
    content += "".join(
        f'      <ComplexType Name="{name}">\n'
        '        <Annotation Term="OData.AdditionalProperties" Bool="false"/>\n'
        f'        <Annotation Term="OData.Description" String="{said}."/>\n'
        + "".join(_property(*one) for one in properties) + "      </ComplexType>\n"
        for name, said, properties in _PARTS)
    content += ('      <ComplexType Name="CompositionService" BaseType="Resource.OemObject">\n'
                '        <Annotation Term="OData.AdditionalProperties" Bool="false"/>\n'
                + _property("Spares", "spares r", "How many spares are wanted, and held") +
                '        <NavigationProperty Name="Requests" '
                'Type="DxPURequestCollection.DxPURequestCollection">\n'
                '          <Annotation Term="OData.Permissions" '
                'EnumMember="OData.Permission/Read"/>\n'
                '          <Annotation Term="OData.AutoExpandReferences"/>\n'
                "        </NavigationProperty>\n      </ComplexType>\n")
    actions = "".join(_action(name, said, "Resource.OemActions") for name, said in _ACTIONS)
    return _file(("Resource", "DxPURequestCollection"), _schema("DxPU", actions),
                 _schema("DxPU.v1_0_0", content))


def _request() -> str:
    base = ('      <EntityType Name="DxPURequest" BaseType="Resource.v1_0_0.Resource" '
            'Abstract="true">\n'
            '        <Annotation Term="OData.Description" String="A wish for GPUs."/>\n'
            "      </EntityType>\n"
            + _action("TakeUp", "Attach what is kept", "DxPURequest.v1_0_0.Actions"))
    own = ('      <EntityType Name="DxPURequest" BaseType="DxPURequest.DxPURequest">\n'
           '        <Annotation Term="OData.AdditionalProperties" Bool="false"/>\n'
           + "".join(_property(*one) for one in _REQUEST)
           + '        <Property Name="Links" Type="DxPURequest.v1_0_0.Links" Nullable="false"/>\n'
           '        <Property Name="Actions" Type="DxPURequest.v1_0_0.Actions" '
           'Nullable="false"/>\n      </EntityType>\n'
           '      <ComplexType Name="Links" BaseType="Resource.Links">\n'
           '        <Annotation Term="OData.AdditionalProperties" Bool="false"/>\n'
           '        <NavigationProperty Name="ResourceBlocks" '
           'Type="Collection(ResourceBlock.ResourceBlock)" Nullable="false">\n'
           '          <Annotation Term="OData.AutoExpandReferences"/>\n'
           "        </NavigationProperty>\n"
           '        <NavigationProperty Name="ComputerSystem" '
           'Type="ComputerSystem.ComputerSystem" Nullable="false">\n'
           '          <Annotation Term="OData.AutoExpandReferences"/>\n'
           "        </NavigationProperty>\n      </ComplexType>\n"
           '      <ComplexType Name="Actions">\n'
           '        <Annotation Term="OData.AdditionalProperties" Bool="false"/>\n'
           "      </ComplexType>\n")
    return _file(("Resource", "ResourceBlock", "ComputerSystem"), _schema("DxPURequest", base),
                 _schema("DxPURequest.v1_0_0", own))


def _requests() -> str:
    content = ('      <EntityType Name="DxPURequestCollection" '
               'BaseType="Resource.v1_0_0.ResourceCollection">\n'
               '        <Annotation Term="OData.Description" String="All wishes for GPUs."/>\n'
               '        <Annotation Term="Capabilities.InsertRestrictions"/>\n'
               '        <NavigationProperty Name="Members" '
               'Type="Collection(DxPURequest.DxPURequest)">\n'
               '          <Annotation Term="OData.Permissions" '
               'EnumMember="OData.Permission/Read"/>\n'
               '          <Annotation Term="OData.AutoExpandReferences"/>\n'
               '          <Annotation Term="Redfish.Required"/>\n'
               "        </NavigationProperty>\n      </EntityType>\n")
    content = content.replace(
        '        <Annotation Term="Capabilities.InsertRestrictions"/>\n', "")
    return _file(("Resource", "DxPURequest"), _schema("DxPURequestCollection", content))


#: Files of the own schemas, by name.
OWN_SCHEMAS: dict[str, str] = {
    "DxPU": _oem(), "DxPURequest": _request(), "DxPURequestCollection": _requests()}

"""`warren parameters` and `warren global-parameters`: runtime parameters."""

from __future__ import annotations

from warren.cli import output
from warren.cli.requests import RequestGroup, in_json, json_argument
from warren_wire.admin import parameters as m

parameters = RequestGroup(
    no_args_is_help=True, help="Parameters of shovels, and of federated queues."
)
global_parameters = RequestGroup(no_args_is_help=True, help="Parameters of the cluster.")
_VALUE = {"value": json_argument("value", 'JSON, as in \'{"uri": "amqp://…"}\'')}
_OF_VHOST: dict[str, output.Column] = {"vhost": "vhost", "component": "component"}
_SHOWN: dict[str, output.Column] = {"name": "name", "value": in_json("value")}

parameters.lists("list", m.ListParametersRequest, columns=_OF_VHOST | _SHOWN, options=("vhost",))
parameters.does(
    "set",
    m.PutParameterRequest,
    "parameter {name} of component {component} in vhost {vhost} set",
    takes=_VALUE,
)
parameters.does(
    "clear",
    m.DeleteParameterRequest,
    "parameter {name} of component {component} in vhost {vhost} cleared",
)
global_parameters.lists("list", m.ListGlobalParametersRequest, columns=_SHOWN)
global_parameters.does(
    "set", m.PutGlobalParameterRequest, "global parameter {name} set", takes=_VALUE
)
global_parameters.does("clear", m.DeleteGlobalParameterRequest, "global parameter {name} cleared")

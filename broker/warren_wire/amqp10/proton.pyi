from cproton import pn_transport_push as pn_transport_push
from cproton_ffi import ffi as ffi
from cproton_ffi import lib as lib
from proton import UNDESCRIBED as UNDESCRIBED
from proton import Array as Array
from proton import Collector as Collector
from proton import Condition as Condition
from proton import Connection as Connection
from proton import Data as Data
from proton import DataException as DataException
from proton import Delivery as Delivery
from proton import Described as Described
from proton import Event as Event
from proton import Link as Link
from proton import Message as Message
from proton import MessageException as MessageException
from proton import ProtonException as ProtonException
from proton import Session as Session
from proton import Terminus as Terminus
from proton import Transport as Transport
from proton import TransportException as TransportException
from proton import symbol as symbol
from proton import timestamp as timestamp
from proton import uint as uint
from proton import ulong as ulong

compiled_engine: str

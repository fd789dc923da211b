"""What tuners measured, kept in one file across versions of the compiler, and used by compilations."""

from weft.tune.database.database import Database as Database
from weft.tune.database.database import TunedSchedules as TunedSchedules
from weft.tune.database.exchange import Added as Added
from weft.tune.database.exchange import check_lines as check_lines
from weft.tune.database.layouts import StoredLayouts as StoredLayouts
from weft.tune.database.neighbours import Neighbour as Neighbour
from weft.tune.database.rows import ModelVerdict as ModelVerdict
from weft.tune.database.rows import StoredKernel as StoredKernel
from weft.tune.database.rows import StoredTrial as StoredTrial

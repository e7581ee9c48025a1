from ._check import PlantCheck as PlantCheck
from ._check import check as check
from ._folder import Planted as Planted
from ._folder import open_planted as open_planted
from ._law import Law as Law
from ._plant import plant as plant

"""How the cost of Rushgate grows: the measurements, pictures and paper model of `bench/scale`."""

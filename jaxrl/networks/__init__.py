"""Networks: layers, torsos, heads and the statistics of their inputs."""

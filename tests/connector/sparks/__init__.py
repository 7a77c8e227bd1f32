"""Warren's wheel wherever Spark runs: environments, deployments, one query in each of them."""

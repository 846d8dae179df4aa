"""The paper's claims and the page of results.

The paper's experiments are files in `workflows/experiments`; their curves run with the published settings and with
the tuned preset, quick versions with the latter. Hollow marks are the published final means. In the published code
all agents' networks share one storage, so N agents train one common network: networks that are federated as the paper
describes do not reach these values, and this project does not imitate the defect. Figures of one command share their
runs. At full size `fnbandit reproduce NAME` compares its results with the shipped ones; `--keep` replaces them,
`--missing` runs only experiments without results, and `fnbandit reproduce --page` writes RESULTS.md.
"""

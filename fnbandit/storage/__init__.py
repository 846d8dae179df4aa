"""The files of runs and studies: records, checkpoints, totals."""

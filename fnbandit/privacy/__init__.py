"""Differential privacy of what leaves an agent: who is protected from whom, by which noise, at which cost.

With `privacy = local` or `central` a run keeps this promise (`promise.Promise`): everything that the server and the
other agents see in all of its rounds together is (epsilon, delta)-differentially private, whatever they know besides.
Neighbours replace one unit: an agent's whole history where agents send networks or gradients only, one interaction of
one agent (its contexts, arm and reward) where they send W and B of features. Neighbours by one interaction have all
others in common, arms included, as in sums of rows that are given: an arm that the agent
would have pulled otherwise later in the epoch is not part of the promise. Neighbours by a whole history have no such
limit.

    networks     agents send theta_sync + clip(theta_i - theta_sync, C), or mean gradients of at most this norm, and
                 noise of standard deviation 2 C z is added: by every agent (`local`), or once to the sum (`central`).
    statistics   rows (g, y) are clipped to L and R, and W and B leave as one noisy triangle. Noise is correlated over
                 rounds (`factorization`), so that that of a sum over all rounds hardly grows with their number.

All releases together cost one Gaussian mechanism (`accounting`). Where an algorithm sends both kinds, each has half of
the squared cost. Everything else that is sent is known beforehand: rounds, counts, steps; `Config` refuses what is not.
`--dry-run` prints the ratio of signal to noise (`promise.Promise.ratio`); below 1 a run is refused.

An agent uses its own raw data freely: its bonus, its training and its choices between two rounds are not noised, and
its own users are not protected from each other. Records and traces are those of the experimenter, who sees everything.
Noise is a function of the seed, so that a run can be repeated: whoever knows the seed can subtract it. A system that
serves people draws it from the operating system, in the arithmetic of an audited library.
"""

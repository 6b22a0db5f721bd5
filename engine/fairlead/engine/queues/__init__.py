"""What queues may use and which gang is next: the tree of queues, charges, fair shares, order, past use.

In: queue and flavor specs, gangs that run or are pending, what the cluster has. Out: `Tree` with use, demand and fair share of
every queue, `Order`, the pending gangs one by one, and `Statement`, through which a decision changes ledgers and use tentatively.
`SchedulerCache` keeps what outlives a decision. Chooses no victims.
"""

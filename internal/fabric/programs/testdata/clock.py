# Fails unless the clocks of a completion agree with others: the system's, and the device's, which counts ns.
import time

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQEX, CqInitAttrEx, PollCqAttr
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

context = Context(name="ndk0")
pd = PD(context)
cq = CQEX(context, CqInitAttrEx(cqe=10, wc_flags=e.IBV_WC_STANDARD_FLAGS | e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK))
mr = MR(pd, 100, e.IBV_ACCESS_LOCAL_WRITE)
attributes = QPAttr(port_num=1)
qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_UC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=1)), attributes)
attributes.path_mtu = e.IBV_MTU_1024
attributes.dest_qp_num = qp.qp_num
attributes.ah_attr = AHAttr(port_num=1, is_global=1, gr=GlobalRoute(dgid=context.query_gid(1, 0)))
qp.to_rts(attributes)

ticks = [context.query_rt_values_ex()[1]]
before = time.time_ns()
qp.post_send(SendWR(num_sge=1, sg=[SGE(mr.buf, 8, mr.lkey)]))
while cq.start_poll(PollCqAttr()):
    pass
after = time.time_ns()
ticks.append(cq.read_timestamp())
time.sleep(0.1)
wall = cq.read_completion_wallclock_ns()
ticks.append(context.query_rt_values_ex()[1])
cq.end_poll()
assert before <= wall <= after, (before, wall, after)
assert ticks[0] <= ticks[1] <= ticks[2] - 100_000_000, ticks

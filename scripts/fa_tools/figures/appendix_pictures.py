"""The appendices' pictures, for scripts/fa pictures."""

from fa_tools.figures.drawing import BLUE, GREEN, GREY, INK, ORANGE, Picture

SCOPES = ("thread", "warp", "warpgroup", "CTA", "cluster", "grid")
# What waits, up to which scope, and what it is called there.
BARRIERS = (
    ("cp.async.wait_group", "thread", "its own copies"),
    ("cp.async.bulk.wait_group", "thread", "its own stores"),
    ("__syncwarp, shuffles, votes", "warp", "the lanes of the mask"),
    ("wgmma.wait_group", "warp", "its own products"),
    ("setmaxnreg", "warpgroup", "registers of the CTA's pool"),
    ("bar.sync, bar.arrive", "CTA", "as many threads as it says, whole warps"),
    ("__syncthreads", "CTA", "all threads"),
    ("mbarrier", "cluster", "so many arrivals and bytes; waiting is for the CTA"),
    ("barrier.cluster", "cluster", "all threads of all its CTAs"),
    ("the kernel's end", "grid", "everybody: what the next kernel waits for"),
)


def synchronisation():
    """Who can wait for whom, and what leads from one proxy to the other."""
    p = Picture(880, 612, "Synchronisation: how far each kind reaches, and the two proxies")
    p.text(24, 30, "How far it reaches", 16, anchor="start", weight="bold")
    left, step, top = 230, 104, 66
    for i, scope in enumerate(SCOPES):
        x = left + i * step
        p.text(x + step / 2, 56, scope, 13, INK.muted, weight="bold")
        p.line(x, top, x, top + 30 * len(BARRIERS), INK.line, 0.8, "3 4")
    colors = {"thread": GREY, "warp": GREEN, "warpgroup": GREEN, "CTA": BLUE, "cluster": ORANGE, "grid": ORANGE}
    for i, (name, scope, whom) in enumerate(BARRIERS):
        y, reach = top + 4 + i * 30, SCOPES.index(scope) + 1
        soft, strong = colors[scope]
        p.text(left - 12, y + 15, name, 12.5, anchor="end")
        p.rect(left, y, reach * step - 4, 22, soft, strong, 4)
        if reach >= 3:
            p.text(left + 8, y + 15, whom, 12, INK.text, "start")
        else:
            p.text(left + reach * step + 4, y + 15, whom, 12, INK.muted, "start")
    y = top + 30 * len(BARRIERS) + 48
    p.text(24, y, "Two ways into shared memory", 16, anchor="start", weight="bold")
    p.text(24, y + 20, "A barrier of threads orders what threads do. It does not reach the other proxy.", 12.5, INK.muted,
           "start")
    y += 44
    p.box(40, y, 250, 128, ["threads: generic proxy", "ld, st, ldmatrix, stmatrix", "cp.async"], *BLUE, 14)
    p.box(590, y, 250, 54, ["copy engine: async proxy", "cp.async.bulk, TMA"], *ORANGE, 14)
    p.box(590, y + 74, 250, 54, ["Tensor Cores: async proxy", "wgmma's operands"], *ORANGE, 14)
    p.arrow(292, y + 18, 588, y + 18, INK.blue, 2.4)
    p.text(440, y + 11, "written: fence.proxy.async, barrier", 12, INK.blue)
    p.arrow(588, y + 42, 292, y + 42, INK.orange, 2.4)
    p.text(440, y + 57, "loaded: mbarrier; stored: bulk.wait_group", 12, INK.orange)
    p.arrow(292, y + 86, 588, y + 86, INK.blue, 2.4)
    p.text(440, y + 79, "written: fence.proxy.async, barrier", 12, INK.blue)
    p.arrow(588, y + 110, 292, y + 110, INK.orange, 2.4)
    p.text(440, y + 126, "read: wgmma.wait_group", 12, INK.orange)
    return p


APPENDIX = {"synchronisation": synchronisation}

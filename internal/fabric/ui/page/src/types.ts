// The types of what the server says: those of the Go packages live, report, adapter, trace and event, as far as the page reads them.

export interface Lab {
  lab: string; seed: number; labels?: Record<string, string>; dilation?: number; replay?: boolean; runs?: number;
  nodes: Node[]; links: Link[]; flows: Flow[] | null; width: number; height: number;
}
export interface Node { name: string; kind: string; group?: string; x: number; y: number }
export interface Link { endpoints: [string, string]; nodes: [number, number] }
export interface Flow { workload: string; from: number; to: number; hops: Hop[] | null; shared?: boolean }
export interface Hop { link: number; end: number }

export interface Sample {
  at: number; over: number; state: string;
  nodes: NodeSample[] | null; links: LinkSample[] | null; workloads: WorkloadSample[] | null;
}
export interface NodeSample {
  state: string; health?: string; out?: number; in?: number; packets?: number; resent?: number; errors?: number;
  cnps?: number; paused?: number; qps?: number; conns?: number; pairs?: PairSample[];
}
export interface PairSample {
  qp: number; peer?: string; rate?: number; target?: number; window?: number; cnps?: number; resent?: number;
}
export interface LinkSample { up: boolean; ends: [DirectionSample, DirectionSample] }
export interface DirectionSample {
  rate?: number; packets?: number; dropped?: number; lost?: number; marked?: number;
  load?: number | null; queue?: number | null; delay?: number | null; cut?: boolean; set?: string[] | null;
  pauses?: { class: number; share: number }[];
}
export interface WorkloadSample {
  name: string; node: number; rate?: number; messages?: number; errors?: number; p50?: number | null; p99?: number | null;
}

export interface LabEvent {
  seconds?: number; at_seconds?: number; kind: string; node?: string; link?: string; workload?: string; text: string;
}

export interface Change {
  act: string; endpoint?: string; from?: string; settings?: string[]; node?: string; sets?: string[][]; to?: string;
}
export interface Changed { command: string; undo: Change[] | null; text: string }

export interface NodeDetail {
  node: {
    name: string; state: string; reason?: string; kind: string; restarts?: number; addresses: string[] | null;
    counters: Record<string, number> | null; transport: Record<string, number> | null;
    ports?: { name: string; to: string; state: string; macs: number }[];
    limits: { cpu: number | null; memory: number | null; pids: number | null } | null;
    usage: Record<string, number | null> | null;
    health?: { state: string; failures: number; reason?: string };
  };
  adapter: {
    enabled: boolean; info: Record<string, unknown>; in_use: Record<string, number>;
    addresses: { address: string; interface: string; mtu: number; roce_frame_size: number }[] | null;
  } | null;
  connections: Connection[] | null;
  log: string[] | null;
}
export interface Connection {
  mode: string; type: string; local: string; remote?: string; pid: number; process?: string; state?: string;
  transport?: string; qpn?: number; remote_qpn?: number; packets_sent?: number; packets_received?: number;
}

export interface Quality {
  delay_us: number | null; jitter_us: number | null; loss: number | null; rate_gbps: number | null;
  duplicate: number | null; reorder: number | null; corrupt: number | null;
}
export interface LinkDetail { endpoints: [string, string]; engine: string; state: string; directions: [Direction, Direction] }
export interface Direction {
  from: string; packets: number; bytes: number; dropped: number; lost: number; asked: Quality; achieved: Quality; set?: Quality | null;
  lost_by: Record<string, number>; duplicated: number; reordered: number; corrupted: number; marked: number; faulted: number;
  queue_peak: number | null; delays?: { from_us: number; packets: number }[] | null; settings?: string[] | null;
}

export interface Row {
  at: number; from: string; size: number; fate: string; cause?: string; done?: string[] | null; delay?: number | null;
  opcode?: string; psn?: number; qp?: number; text: string;
}
export interface Sequence {
  from: { address: string; qpn: number }; to: { address: string; qpn: number }; reversed?: boolean; points: Point[] | null;
}
export interface Point {
  at: number; kind: string; psn: number; to?: number; size?: number; opcode?: string; lost?: string; acked?: number; text: string;
}

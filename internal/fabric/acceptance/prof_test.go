package acceptance
import ("testing";"os";"context";"time";"fmt"
 "github.com/ndklab/ndklab/topology"
 "github.com/ndklab/ndklab/internal/fabric/simulate")
func TestProf(t *testing.T){
 p:=os.Getenv("PROF"); if p=="" {t.Skip()}
 b,_:=os.ReadFile(p); topo,err:=topology.Parse(p,b); if err!=nil{t.Fatal(err)}
 s:=time.Now(); r,err:=simulate.Run(context.Background(),topo,simulate.Options{}); if err!=nil{t.Fatal(err)}
 n:=uint64(0); for _,x:=range r.Nodes{n+=x.Counters["RDMAOutFrames"]}
 d:=time.Since(s); fmt.Println(d, n, float64(n)/d.Seconds(), "pkts/s", len(r.Deadlocks))
 tx:=uint64(0); for _,b:=range r.Buffers{for _,p:=range b.Ports{for _,c:=range p.Classes{tx+=c.TxPauses}}}; fmt.Println("pauses",tx)
}

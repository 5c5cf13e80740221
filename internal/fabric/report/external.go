package report

// An External is a link's end outside the lab, in inspect only. Its frames are
// counted that crossed its sockets.
type External struct {
	Endpoint  string   `json:"endpoint"`  // external:NAME
	MTU       int      `json:"mtu"`       // bytes of IP packet
	Addresses []string `json:"addresses"` // that the lab expects there, CIDR form
	// Where interface NAME is: by its name for ip netns, which ordinary users'
	// labs have not, and as a file.
	Namespace     string `json:"namespace,omitempty"`
	NamespacePath string `json:"namespace_path"`
	Socket        string `json:"socket"`      // takes frames for the lab, one a datagram
	PeerSocket    string `json:"peer_socket"` // for who is outside to make: gets frames
	ToPeer        uint64 `json:"to_peer"`     // frames
	FromPeer      uint64 `json:"from_peer"`
	NoPeer        uint64 `json:"no_peer"` // for which there was no peer socket
	Lost          uint64 `json:"lost"`    // to a peer too slow, a frame too long, an interface that was down
}

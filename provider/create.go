package provider

// A Header stands at the beginning of every object (NDK_OBJECT_HEADER).
type Header struct {
	Version    Version
	ObjectType ObjectType
	Reserved   [4]any // the consumer's; the provider does not touch it
}

// An Object has the methods that all objects but the adapter have in common.
type Object interface {
	Header() *Header
	Type() ObjectType
	Version() Version
	QueryExtension(id GUID, version Version, extension *ExtensionInterface) Status
	Close(completion CloseCompletion, context any) Status
}

// CreateCompletion delivers the object of a create that returned StatusPending,
// or says why there is none.
type CreateCompletion func(context any, status Status, object Object)

// completeCreate ends the creation of o, whose object is base: at once, or, if the
// device is to pend and there is a completion to call, a little later.
func completeCreate[T Object](m *Miniport, o T, base *object, completion CreateCompletion, context any) (T, Status) {
	if !m.pend || completion == nil {
		return o, StatusSuccess
	}
	base.hold() // until the callback has returned, in which the consumer may close it
	m.clock.Go(func() {
		completion(context, StatusSuccess, o)
		base.release()
	})
	var none T
	return none, StatusPending
}

// completeRequest tells the result of a request of o's that is done: at once, or,
// if the device is to pend and there is a completion to call, a little later.
func (m *Miniport) completeRequest(o *object, completion RequestCompletion, context any) Status {
	if !m.pend || completion == nil {
		return StatusSuccess
	}
	o.hold()
	m.clock.Go(func() {
		completion(context, StatusSuccess)
		o.release()
	})
	return StatusPending
}

// discard undoes the making of an object that the consumer never gets.
func (o *object) discard() {
	o.end(nil)
	o.releaseAntecedents()
}

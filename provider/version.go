package provider

// Version is an NDK interface version.
type Version struct{ Major, Minor uint16 }

// InterfaceVersion is the highest version that this provider implements.
var InterfaceVersion = Version{2, 1}

// versions are the highest of each major version. A consumer of 1.x finds
// everything that it may call as it was then; what came with 2.1 answers
// StatusNotSupported to it, where its dispatch table would have no slot.
var versions = []Version{{1, 2}, InterfaceVersion}

// negotiate returns the version that an instance works with: the highest minor of the
// major asked for (ndkpi.md T18); false if that is not enough, or there is none.
func negotiate(asked Version) (Version, bool) {
	for _, have := range versions {
		if have.Major == asked.Major {
			return have, asked.Minor <= have.Minor
		}
	}
	return Version{}, false
}

// hasEx reports whether the object's interface has the functions in Ex form.
func (o *object) hasEx() bool { return o.header.Version.Major >= 2 }

// A GUID names an extension interface.
type GUID [16]byte

// An ExtensionInterface is the result of QueryExtension (NDK_EXTENSION_INTERFACE).
type ExtensionInterface struct {
	Dispatch any // functions, of a type that the extension says
}

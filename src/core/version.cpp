#include <amalgam/version.hpp>

#define AMALGAM_TEXT_OF(what) #what
#define AMALGAM_TEXT(what) AMALGAM_TEXT_OF(what)

namespace amalgam {

const char* version() noexcept {
    return AMALGAM_TEXT(AMALGAM_VERSION_MAJOR) "." AMALGAM_TEXT(
        AMALGAM_VERSION_MINOR) "." AMALGAM_TEXT(AMALGAM_VERSION_PATCH);
}

}  // namespace amalgam

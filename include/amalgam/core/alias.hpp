#pragma once

#ifndef __cpp_exceptions
#error \
    "Amalgam reports failures by exceptions, and this compiler has them off: leave out -fno-exceptions for sources that include it"
#endif

/// All of the library. Its layers are the folders of `amalgam/`; see the list of headers.
namespace amalgam {}

/// The alias in guides and examples. The header of each layer brings it, and amalgam.hpp.
namespace am = amalgam;

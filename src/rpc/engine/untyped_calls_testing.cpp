// Compiled with -fno-rtti, as some users' programs are.
#include "rpc/engine/untyped_calls_testing.hpp"

namespace amalgam {

future<untyped_result> start_untyped(engine& here, const peer& there, const char* procedure) {
    return here.procedure<untyped_result()>(procedure).on(there).start();
}

untyped_result call_untyped(engine& here, const peer& there, const char* procedure) {
    return here.procedure<untyped_result()>(procedure).on(there)();
}

}  // namespace amalgam

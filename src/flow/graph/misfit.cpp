// Does not compile: see flow_misfit_test.
#include <amalgam/flow/graph.hpp>

void join(amalgam::graph& g, amalgam::block<void, int> from, amalgam::block<long, void> to) {
    g.pipeline(from, to);
}

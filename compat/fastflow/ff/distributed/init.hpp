#pragma once

#include <cstddef>
#include <string>

namespace ff {

namespace detail {

/// What FastFlow's macros say where the configuration file does not.
struct dff_defaults {
    int batch_size;
    size_t batch_bytes;
    int on_the_fly;
    int internal_on_the_fly;
};
int dff_init(int& argc, char**& argv, const dff_defaults& defaults);

}  // namespace detail

/// The group that this process runs; empty before DFF_Init().
std::string DFF_getMyGroup();
/// Overrides the configuration file, for all groups. After DFF_Init().
void setBatchSize(int items);
void setBatchByteSize(size_t bytes);

}  // namespace ff

#pragma once

/// The version of FastFlow whose interface this is.
#define FF_MAJOR_VERSION 3
#define FF_MINOR_VERSION 0
#define FF_BETA_VERSION 1
#define FF_VERSION "3.0.1"

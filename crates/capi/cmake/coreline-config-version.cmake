# The version is that of the header. Before 1.0, each minor version may break programs.
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/../../../include/coreline.h" _coreline_version
    REGEX "^#define CORELINE_VERSION_(MAJOR|MINOR|PATCH) [0-9]+$")
list(TRANSFORM _coreline_version REPLACE "^.* " "")
list(JOIN _coreline_version "." PACKAGE_VERSION)
if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
endif()
string(REGEX MATCH "^[0-9]+\\.[0-9]+" _coreline_own "${PACKAGE_VERSION}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" _coreline_asked "${PACKAGE_FIND_VERSION}")
if(_coreline_own STREQUAL _coreline_asked AND NOT PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()

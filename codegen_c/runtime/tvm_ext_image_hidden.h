/* Included before each source of an image: all names are local to the image, so that addresses are relative. */
#pragma GCC visibility push(hidden)

"""The end of a plateau from one look: what is seen (``looks``), carried along (``strides``) and told (``escape``)."""
